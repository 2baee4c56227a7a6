#pragma once

#include <algorithm>
#include <cstdint>

#include "base/threads.h"

namespace heddle::cpu {

/// Elements that one index of parallel_for takes in an elementwise kernel: long enough to hide the hand-out, short
/// enough for its operands to stay in the second-level cache.
inline constexpr std::int64_t kElementsPerBlock = 16384;

/// Elements of a block where a kernel reads and writes long tensors in memory and each result is its element's alone: a
/// processor brings streams near only some time after they begin, so blocks are as long as sharing out allows.
inline std::int64_t long_block(std::int64_t n) {
  constexpr std::int64_t kBlocksPerThread = 8;
  const std::int64_t share = n / (threads() * kBlocksPerThread) / kElementsPerBlock * kElementsPerBlock;
  return std::clamp(share, kElementsPerBlock, 16 * kElementsPerBlock);
}

/// Calls body(begin, count) for consecutive pieces of [0, n) of `block` elements each; where they lie depends on n
/// alone.
template <typename Body>
void for_each_block(std::int64_t n, std::int64_t block, const Body& body) {
  parallel_for((n + block - 1) / block,
               [&](std::int64_t index, int) { body(index * block, std::min(block, n - index * block)); });
}

/// Rows of `width` elements that make up about one block; at least one.
inline std::int64_t rows_per_block(std::int64_t width) {
  return std::max<std::int64_t>(1, kElementsPerBlock / std::max<std::int64_t>(1, width));
}

}  // namespace heddle::cpu
