#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "data/data_stream.h"

namespace heddle {

/// All that the module which reads Parquet, libheddle_parquet.so, knows of the program. It is loaded when the first
/// such file is met: Arrow's libraries are larger than the program and would slow every start of it.
struct ParquetInput {
  std::string path;  ///< for errors
  std::uint64_t size = 0;
  std::function<void(std::uint64_t offset, std::span<char> target)> read;
  std::function<bool(std::string_view column)> is_used;
};

/// The module's one function: see open_parquet_rows(). The caller deletes the result.
using OpenParquet = DataStream::Decoder*(const ParquetInput& input);
constexpr const char* kOpenParquet = "heddle_open_parquet";

}  // namespace heddle
