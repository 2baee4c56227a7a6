#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "data/data_stream.h"
#include "formats/file_reader.h"

namespace heddle {

/// The rows of a Parquet file as JSON Lines, so that line N is row N. A null is left out, as Parquet cannot tell it
/// from a field that is absent; a column that is not used is not read, and null. Memory is bounded by pages and batches
/// of rows, whatever the size of row groups. Throws Error "PATH: ...", read() too, for what is no sound Parquet, and
/// where the module that reads it (parquet/module.h) is absent. `file` must outlive the result.
std::unique_ptr<DataStream::Decoder> open_parquet_rows(const FileReader& file,
                                                       std::function<bool(std::string_view column)> is_used);

}  // namespace heddle
