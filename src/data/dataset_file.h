#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "data/conversation_encoder.h"
#include "data/row_encoder.h"
#include "data/row_parser.h"
#include "data/token_cache.h"

namespace heddle {

/// What decides the rows of one data file, besides its content.
struct DataFileOptions {
  const RowEncoder* encoder = nullptr;                 ///< null: rows must carry ids
  const ConversationEncoder* conversations = nullptr;  ///< null where `encoder` is
  RowRules rules;
  /// Whatever decides how conversations are encoded and labelled, for the key of the cache.
  std::string conversation_key;
  bool skip_bad_rows = false;
  std::filesystem::path cache_folder;               ///< empty: no cache
  std::int64_t part_bytes = std::int64_t{1} << 25;  ///< of rows: what a kill may lose of them
};

/// Tokenizes a data file, which may be compressed, on all threads, or opens what an earlier run made of the same
/// content; of rows, what a killed run had made is taken over. The file is read window by window; one that is changed
/// meanwhile is an Error. Bad rows are in the table's notes, or, unless they are skipped, the first is thrown as Error
/// "PATH:LINE: ...".
TokenTable load_data_file(const std::string& path, const DataFileOptions& options);

}  // namespace heddle
