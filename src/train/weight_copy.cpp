#include "train/weight_copy.h"

#include <algorithm>
#include <vector>

#include "quantize/decode.h"

namespace heddle {

void copy_elements(const WeightFiles& files, const StoredTensor& stored, std::int64_t begin, std::int64_t end,
                   const OpenFile& target, const PlacedTensor& placed) {
  constexpr std::int64_t kBuffered = std::int64_t{1} << 20;
  const std::int64_t block = block_elements(stored.dtype), size = static_cast<std::int64_t>(dtype_bytes(placed.dtype));
  std::vector<std::byte> bytes, rounded;
  std::vector<float> values;
  for (std::int64_t first = begin / block * block; first < end; first += kBuffered / block * block) {
    // Whole blocks are read, and of these what lies in [begin, end) is written.
    const std::int64_t last =
        std::min({first + kBuffered / block * block, (end + block - 1) / block * block, placed.elements});
    const std::int64_t from = std::max(begin, first), to = std::min(end, last), skipped = from - first;
    bytes.resize(static_cast<std::size_t>(storage_bytes(stored.dtype, last - first)));
    files.read(stored, static_cast<std::uint64_t>(storage_bytes(stored.dtype, first)), bytes);
    const std::uint64_t place = placed.offset + static_cast<std::uint64_t>(from * size);
    if (stored.dtype == placed.dtype) {
      target.write_at(place, std::span(bytes).subspan(static_cast<std::size_t>(skipped * size)));
      continue;
    }
    values.resize(static_cast<std::size_t>(last - first));
    decode(stored.dtype, bytes.data(), last - first, 0, last - first, values.data());
    rounded.resize(static_cast<std::size_t>((to - from) * size));
    convert(values.data() + skipped, DType::f32, rounded.data(), placed.dtype, to - from);
    target.write_at(place, rounded);
  }
}

}  // namespace heddle
