#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

/// Sums that do not depend on who holds which part. A tensor's elements are cut into blocks whose length depends on the
/// tensor alone; blocks are the leaves of a binary tree over their indices, and a sum goes up that tree, left + right.
/// A holder of consecutive blocks sums the whole subtrees among them (runs); combine() puts the runs of all holders
/// together.
namespace heddle {

/// Short for small tensors, so that padding to whole blocks stays small; long for large ones, so that blocks are few.
/// From 4096 elements on multiples of 256: 8-bit optimizer states have a scale for so many.
constexpr std::int64_t block_elements(std::int64_t elements) {
  if (elements < (std::int64_t{1} << 12)) return 16;
  if (elements < (std::int64_t{1} << 14)) return 256;
  return elements < (std::int64_t{1} << 28) ? 1024 : 16384;
}
constexpr std::int64_t block_count(std::int64_t elements) {
  return (elements + block_elements(elements) - 1) / block_elements(elements);
}

/// Runs that consecutive blocks can make up, at most: two for each level of a tree of 2^24 blocks (2^38 elements).
inline constexpr std::int64_t kMostRuns = 48;

/// Calls body(first block, blocks) for the largest whole subtrees that make up the blocks [begin, end), left to right.
template <typename Body>
void for_each_run(std::int64_t begin, std::int64_t end, Body&& body) {
  while (begin < end) {
    const auto fits = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(end - begin)));
    const std::int64_t blocks = begin == 0 ? fits : std::min(fits, begin & -begin);
    body(begin, blocks);
    begin += blocks;
  }
}

/// The tree's sum from runs that are given from left to right without a gap.
class RunSum {
 public:
  void add(std::int64_t begin, std::int64_t blocks, double sum) {
    while (size_ > 0 && runs_[size_ - 1].blocks == blocks && runs_[size_ - 1].begin + blocks == begin &&
           runs_[size_ - 1].begin % (2 * blocks) == 0) {
      sum = runs_[--size_].sum + sum;
      begin -= blocks;
      blocks *= 2;
    }
    runs_[size_++] = {begin, blocks, sum};
  }
  /// The sum of what was added, which began at block 0.
  double total() const {
    double sum = 0.0;
    for (std::size_t i = size_; i-- > 0;) sum = i + 1 == size_ ? runs_[i].sum : runs_[i].sum + sum;
    return sum;
  }

 private:
  struct Run {
    std::int64_t begin, blocks;
    double sum;
  };
  std::array<Run, 64> runs_;
  std::size_t size_ = 0;
};

}  // namespace heddle
