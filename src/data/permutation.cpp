#include "data/permutation.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/random.h"

namespace heddle {
namespace {

// The two uses of one seed draw from streams that never meet.
constexpr std::uint64_t kKeyStream = 0x73687566666C6501u, kBitStream = 0x73687566666C6502u;

std::uint64_t draw(std::uint64_t seed, std::uint64_t counter, std::uint64_t stream) {
  const auto words = philox(seed, counter, stream);
  return (std::uint64_t{words[0]} << 32) | words[1];
}

}  // namespace

Permutation::Permutation(std::int64_t size, std::uint64_t seed, std::uint64_t epoch)
    : size_(static_cast<std::uint64_t>(size)), seed_(draw(seed, epoch, kKeyStream)) {
  HEDDLE_CHECK(size > 0);
  // The paper's bound asks for a few rounds per bit of size; the constant makes small sizes well mixed too.
  rounds_ = 48 + 4 * static_cast<int>(std::bit_width(size_ - 1));
  // A 64-bit draw modulo size is off uniform by size / 2^64 at most.
  for (int round = 0; round < rounds_; ++round) {
    round_keys_[static_cast<std::size_t>(round)] = draw(seed_, static_cast<std::uint64_t>(round), kKeyStream) % size_;
  }
}

std::int64_t Permutation::operator()(std::int64_t index) const {
  auto x = static_cast<std::uint64_t>(index);
  HEDDLE_CHECK(x < size_);
  for (int round = 0; round < rounds_; ++round) {
    // Each round pairs x with key - x, and one bit, the same for both, says whether the two change places.
    const std::uint64_t key = round_keys_[static_cast<std::size_t>(round)];
    const std::uint64_t partner = key >= x ? key - x : key + size_ - x;
    const std::uint64_t pair = std::max(x, partner);
    if ((philox(seed_, pair, kBitStream + (static_cast<std::uint64_t>(round) << 8))[0] & 1) != 0) x = partner;
  }
  return static_cast<std::int64_t>(x);
}

}  // namespace heddle
