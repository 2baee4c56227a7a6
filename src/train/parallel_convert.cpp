#include "train/parallel_convert.h"

#include <algorithm>
#include <cstddef>

#include "base/threads.h"

namespace heddle {
namespace {

constexpr std::int64_t kPiece = std::int64_t{1} << 16;  // elements that one thread converts at a time

}  // namespace

void convert_parallel(const void* source, DType source_type, void* target, DType target_type, std::int64_t count) {
  const auto* from = static_cast<const std::byte*>(source);
  auto* to = static_cast<std::byte*>(target);
  parallel_for((count + kPiece - 1) / kPiece, [&](std::int64_t piece, int) {
    const std::int64_t begin = piece * kPiece, size = std::min(kPiece, count - begin);
    const auto offset = static_cast<std::size_t>(begin);
    convert(from + offset * dtype_bytes(source_type), source_type, to + offset * dtype_bytes(target_type), target_type,
            size);
  });
}

}  // namespace heddle
