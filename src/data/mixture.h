#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace heddle {

/// A run of items that an epoch takes from one source: all of them, some times over, or a part of them.
struct MixturePass {
  std::size_t source = 0;
  std::int64_t size = 0;   ///< items of the source
  std::int64_t first = 0;  ///< items of the passes before
  std::int64_t count = 0;  ///< items taken
  bool is_part = false;    ///< fewer than all: count < size

  /// The item of the source that lies at `index` of the epoch, parts being spread evenly over the source.
  std::int64_t item(std::int64_t index) const {
    const std::int64_t local = index - first;
    return is_part ? static_cast<std::int64_t>(static_cast<double>(local) * static_cast<double>(size) /
                                               static_cast<double>(count))
                   : local % size;
  }
};

/// Which items of each source an epoch takes: weight x size of them, rounded, at least one where there is one. Throws
/// Error where that are more than can be counted.
std::vector<MixturePass> mix(std::span<const std::int64_t> sizes, std::span<const double> weights);

/// Items of all passes.
std::int64_t count_items(std::span<const MixturePass> passes);

/// The pass that has item `index`, which is below count_items().
const MixturePass& find_pass(std::span<const MixturePass> passes, std::int64_t index);

}  // namespace heddle
