#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "formats/safetensors.h"

namespace heddle {

/// The values of a stored tensor in fp32, read piece by piece. Holds the bytes of a piece; of bitsandbytes' types,
/// whose scales lie behind all codes, those of the tensor: half a byte for each element.
class DecodedTensor {
 public:
  /// Both must outlive it.
  DecodedTensor(const WeightFiles& files, const StoredTensor& stored);

  std::int64_t elements() const { return elements_; }
  /// Elements [begin, begin + values.size()), any.
  void read(std::int64_t begin, std::span<float> values);

  /// Calls use(begin, values) for the elements [begin, end), piece by piece.
  template <typename Use>
  void for_each_piece(std::int64_t begin, std::int64_t end, Use use) {
    std::vector<float> values;
    while (begin < end) {
      values.resize(static_cast<std::size_t>(std::min(end - begin, kPiece - begin % kPiece)));
      read(begin, values);
      use(begin, std::span<float>(values));
      begin += static_cast<std::int64_t>(values.size());
    }
  }

 private:
  static constexpr std::int64_t kPiece = std::int64_t{1} << 20;  // elements

  const WeightFiles& files_;
  const StoredTensor& stored_;
  std::int64_t elements_ = 1;
  std::vector<std::byte> bytes_;
  std::vector<float> whole_blocks_;
};

}  // namespace heddle
