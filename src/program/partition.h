#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/block_tree.h"

namespace heddle {

/// How the flattened elements of one tensor are cut over ranks: equal pieces, rank r's from r * piece() on. Any size of
/// tensor goes over any number of ranks; what reaches past the end is padding, which nothing reads.
///
/// Pieces are whole blocks (ops/block_tree.h), so that the gradient norm is the same sum whoever holds them.
struct Partition {
  std::int64_t elements = 0;
  int ranks = 1;

  /// Elements of one rank's piece; the whole tensor, without padding, where there is one rank.
  std::int64_t piece() const {
    return ranks == 1 ? elements : (block_count(elements) + ranks - 1) / ranks * block_elements(elements);
  }
  std::int64_t padded() const { return piece() * ranks; }
  std::int64_t begin(int rank) const { return std::min(rank * piece(), elements); }
  std::int64_t end(int rank) const { return begin(rank + 1); }
};

/// Which rank of how many data-parallel ones a program is compiled for, and what the ranks divide among them
/// (Rajbhandari et al. 2020, ZeRO, arXiv:1910.02054): nothing (stage 0), optimizer states and master weights (1), also
/// gradients (2), also weights (3).
struct Sharding {
  int stage = 0;
  int ranks = 1;
  int rank = 0;
  std::int64_t accumulation = 1;  ///< micro-batches of a rank in one optimizer step, at most
  bool is_ordered = true;         ///< gradients add up in the order of the micro-batches, whatever the number of ranks
  bool overlaps = true;           ///< collectives run while another unit is computed, which takes its memory too
  std::int64_t persistence_threshold = 0;  ///< stage 3: weights of fewer elements stay whole on every rank

  bool shards_optimizer() const { return stage >= 1 && ranks > 1; }
  bool shards_gradients() const { return stage >= 2 && ranks > 1; }
  bool shards_weight(std::int64_t elements) const {
    return stage >= 3 && ranks > 1 && elements >= persistence_threshold;
  }
  Partition partition(std::int64_t elements) const { return {elements, ranks}; }
};

}  // namespace heddle
