#include "base/random.h"

#include <cmath>
#include <numbers>
#include <utility>

namespace heddle {

std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  auto c0 = static_cast<std::uint32_t>(counter_low), c1 = static_cast<std::uint32_t>(counter_low >> 32);
  auto c2 = static_cast<std::uint32_t>(counter_high), c3 = static_cast<std::uint32_t>(counter_high >> 32);
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = kMultiplier0 * c0, p1 = kMultiplier1 * c2;
    const auto n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0, n1 = static_cast<std::uint32_t>(p1);
    const auto n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1, n3 = static_cast<std::uint32_t>(p0);
    c0 = n0, c1 = n1, c2 = n2, c3 = n3;
    k0 += kWeyl0, k1 += kWeyl1;
  }
  return {c0, c1, c2, c3};
}

std::uint32_t Random::word() {
  if (used_ == 4) {
    words_ = philox(key_, index_++, stream_);
    used_ = 0;
  }
  return words_[used_++];
}

double Random::uniform() {
  const std::uint64_t high = word() >> 5, low = word() >> 6;
  return static_cast<double>(high * 67108864u + low) * 0x1.0p-53;
}

std::uint64_t Random::below(std::uint64_t bound) {
  const std::uint64_t limit = UINT64_MAX - UINT64_MAX % bound;
  for (;;) {
    const std::uint64_t high = word();
    const std::uint64_t value = (high << 32) | word();
    if (value < limit) return value % bound;
  }
}

double Random::normal() {
  if (second_) return *std::exchange(second_, std::nullopt);
  const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
  const double angle = 2.0 * std::numbers::pi * uniform();
  second_ = radius * std::sin(angle);
  return radius * std::cos(angle);
}

}  // namespace heddle
