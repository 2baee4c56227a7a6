#include "train/decoded_tensor.h"

#include <algorithm>

#include "base/error.h"
#include "base/threads.h"
#include "quantize/decode.h"
#include "quantize/four_bit.h"

namespace heddle {
namespace {

/// `values` of a tensor of `elements`, from `begin` on, whole blocks.
void decode_parallel(DType type, const std::byte* tensor, std::int64_t elements, std::int64_t begin,
                     std::span<float> values) {
  constexpr std::int64_t kChunk = std::int64_t{1} << 14;  // whole blocks of every type, by one thread
  const auto count = static_cast<std::int64_t>(values.size());
  parallel_for((count + kChunk - 1) / kChunk, [&](std::int64_t index, int) {
    const std::int64_t from = index * kChunk;
    decode(type, tensor, elements, begin + from, std::min(kChunk, count - from), values.data() + from);
  });
}

}  // namespace

DecodedTensor::DecodedTensor(const WeightFiles& files, const StoredTensor& stored) : files_(files), stored_(stored) {
  for (const std::int64_t extent : stored.shape) elements_ *= extent;
}

void DecodedTensor::read(std::int64_t begin, std::span<float> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  HEDDLE_CHECK(begin >= 0 && count <= elements_ - begin);
  if (is_four_bit(stored_.dtype)) {
    if (bytes_.empty()) {
      bytes_.resize(static_cast<std::size_t>(storage_bytes(stored_.dtype, elements_)));
      files_.read(stored_, 0, bytes_);
    }
    return decode_parallel(stored_.dtype, bytes_.data(), elements_, begin, values);
  }
  const std::int64_t block = block_elements(stored_.dtype), first = begin / block * block;
  const std::int64_t last = std::min((begin + count + block - 1) / block * block, elements_);
  bytes_.resize(static_cast<std::size_t>(storage_bytes(stored_.dtype, last - first)));
  files_.read(stored_, static_cast<std::uint64_t>(storage_bytes(stored_.dtype, first)), bytes_);
  if (first == begin && last == begin + count) {
    return decode_parallel(stored_.dtype, bytes_.data(), count, 0, values);
  }
  whole_blocks_.resize(static_cast<std::size_t>(last - first));
  decode_parallel(stored_.dtype, bytes_.data(), last - first, 0, whole_blocks_);
  std::copy_n(whole_blocks_.begin() + (begin - first), count, values.begin());
}

}  // namespace heddle
