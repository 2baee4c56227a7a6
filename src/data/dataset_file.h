#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/row_encoder.h"
#include "data/token_cache.h"

namespace heddle {

/// What decides the rows of one data file, besides its content.
struct DataFileOptions {
  const RowEncoder* encoder = nullptr;  ///< null: rows must carry ids
  std::int32_t vocab_size = 0;          ///< ids must be below
  bool skip_bad_rows = false;
  std::filesystem::path cache_folder;  ///< empty: no cache
};

/// Tokenizes a data file on all threads, or opens what an earlier run made of the same content. The file is read window
/// by window; one that is changed meanwhile is an Error. Bad rows are in the table's notes, or, unless they are
/// skipped, the first is thrown as Error "PATH:LINE: ...".
TokenTable load_data_file(const std::string& path, const DataFileOptions& options);

}  // namespace heddle
