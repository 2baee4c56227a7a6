#include "train/weight_copy.h"

#include <algorithm>
#include <vector>

#include "train/decoded_tensor.h"

namespace heddle {

void copy_elements(const WeightFiles& files, const StoredTensor& stored, std::int64_t begin, std::int64_t end,
                   const OpenFile& target, const PlacedTensor& placed) {
  const std::size_t size = dtype_bytes(placed.dtype);
  const auto place_of = [&](std::int64_t element) {
    return placed.offset + static_cast<std::uint64_t>(element) * size;
  };
  std::vector<std::byte> bytes;
  if (stored.dtype == placed.dtype) {
    constexpr std::int64_t kBuffered = std::int64_t{1} << 20;
    for (std::int64_t first = begin; first < end; first += kBuffered) {
      bytes.resize(static_cast<std::size_t>(std::min(kBuffered, end - first)) * size);
      files.read(stored, static_cast<std::uint64_t>(first) * size, bytes);
      target.write_at(place_of(first), bytes);
    }
    return;
  }
  DecodedTensor(files, stored).for_each_piece(begin, end, [&](std::int64_t first, std::span<const float> values) {
    bytes.resize(values.size() * size);
    convert(values.data(), DType::f32, bytes.data(), placed.dtype, static_cast<std::int64_t>(values.size()));
    target.write_at(place_of(first), bytes);
  });
}

}  // namespace heddle
