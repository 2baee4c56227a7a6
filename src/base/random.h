#pragma once

#include <array>
#include <cstdint>
#include <optional>

namespace heddle {

/// Philox 4x32-10: four 32-bit words that depend on (key, counter) alone. Salmon et al. 2011, "Parallel random numbers:
/// as easy as 1, 2, 3", SC'11. Random streams need no state: what is drawn depends on what it is for, never on the
/// order of drawing, so threads, recomputation and resuming see the same numbers.
std::array<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter_low, std::uint64_t counter_high);

/// Uniform in [0, 1) from the upper 24 bits of a word.
inline float uniform_from(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1.0p-24f; }

/// Draws in sequence from one stream of one key; for shuffling, sampling and initialisation.
class Random {
 public:
  Random(std::uint64_t key, std::uint64_t stream) : key_(key), stream_(stream) {}
  std::uint32_t word();
  /// Uniform in [0, 1), 53 bits.
  double uniform();
  /// Uniform in [0, bound) without bias; bound > 0.
  std::uint64_t below(std::uint64_t bound);
  /// Standard normal (Box, Muller 1958); in bulk: kernels/cpu/draw_normal.h.
  double normal();

 private:
  std::uint64_t key_, stream_, index_ = 0;
  std::array<std::uint32_t, 4> words_{};
  unsigned used_ = 4;
  std::optional<double> second_;  // Box, Muller makes two at a time
};

}  // namespace heddle
