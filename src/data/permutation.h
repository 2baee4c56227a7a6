#pragma once

#include <array>
#include <cstdint>

namespace heddle {

/// A random order of 0..size-1, any place of which is computed on its own: nothing is stored and nothing shuffled, so
/// that training can resume at any step at once. The swap-or-not shuffle: Hoang, Morris, Rogaway 2012, "An Enciphering
/// Scheme Based on a Card Shuffle", CRYPTO 2012, arXiv:1208.1176, with Philox as its round function.
class Permutation {
 public:
  /// The order depends on these alone. size > 0.
  Permutation(std::int64_t size, std::uint64_t seed, std::uint64_t epoch);
  /// What lies at `index`, in [0, size).
  std::int64_t operator()(std::int64_t index) const;

 private:
  std::uint64_t size_, seed_;  // the seed of this epoch alone
  int rounds_;
  std::array<std::uint64_t, 304> round_keys_{};  // each below size
};

}  // namespace heddle
