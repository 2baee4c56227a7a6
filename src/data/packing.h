#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace heddle {

/// Items in bins: bin b holds items[starts[b]] .. items[starts[b + 1] - 1], in ascending order.
struct Bins {
  std::vector<std::int64_t> starts, items;
  std::int64_t count() const { return static_cast<std::int64_t>(starts.size()) - 1; }
  std::span<const std::int64_t> operator[](std::int64_t bin) const;
};

/// First-fit-decreasing: longest items first (of equal ones the earlier), each into the first bin with room. At most
/// 11/9 of the fewest possible bins, plus 6/9 (Dosa 2007). Bins are then ordered by their first item, so that they keep
/// to the order of the file as far as they can. Each size is in 1..capacity. Takes O(n log n) time.
Bins first_fit_decreasing(std::span<const std::int64_t> sizes, std::int64_t capacity);

}  // namespace heddle
