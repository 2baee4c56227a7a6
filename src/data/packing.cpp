#include "data/packing.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"

namespace heddle {
namespace {

/// Room in each bin, and the first bin with enough of it: a tree of maxima.
class RoomTree {
 public:
  RoomTree(std::size_t bins, std::int64_t capacity) : leaves_(std::bit_ceil(bins)), room_(2 * leaves_, capacity) {}

  /// There is always one: as many bins as items.
  std::size_t take_first(std::int64_t size) {
    std::size_t node = 1;
    while (node < leaves_) node = room_[2 * node] >= size ? 2 * node : 2 * node + 1;
    const std::size_t bin = node - leaves_;
    room_[node] -= size;
    while (node > 1) {
      node /= 2;
      room_[node] = std::max(room_[2 * node], room_[2 * node + 1]);
    }
    return bin;
  }

 private:
  std::size_t leaves_;
  std::vector<std::int64_t> room_;
};

}  // namespace

std::span<const std::int64_t> Bins::operator[](std::int64_t bin) const {
  const auto b = static_cast<std::size_t>(bin);
  return {items.data() + starts[b], items.data() + starts[b + 1]};
}

Bins first_fit_decreasing(std::span<const std::int64_t> sizes, std::int64_t capacity) {
  const std::size_t count = sizes.size();
  std::vector<std::int64_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  const auto size_of = [&](std::int64_t item) { return sizes[static_cast<std::size_t>(item)]; };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return size_of(a) > size_of(b); });

  RoomTree room(std::max<std::size_t>(count, 1), capacity);
  std::vector<std::size_t> bin_of(count);
  for (const std::int64_t item : order) {
    HEDDLE_CHECK(size_of(item) > 0 && size_of(item) <= capacity);
    bin_of[static_cast<std::size_t>(item)] = room.take_first(size_of(item));
  }

  // Renumber bins by first item, then sort the items into them by counting.
  std::vector<std::int64_t> number(count, -1);
  Bins bins;
  bins.starts.push_back(0);
  for (const std::size_t bin : bin_of) {
    if (number[bin] < 0) {
      number[bin] = bins.count();
      bins.starts.push_back(0);
    }
    ++bins.starts[static_cast<std::size_t>(number[bin]) + 1];
  }
  std::partial_sum(bins.starts.begin(), bins.starts.end(), bins.starts.begin());
  bins.items.resize(count);
  std::vector<std::int64_t> next(bins.starts.begin(), bins.starts.end() - 1);
  for (std::size_t item = 0; item < count; ++item) {
    const auto bin = static_cast<std::size_t>(number[bin_of[item]]);
    bins.items[static_cast<std::size_t>(next[bin]++)] = static_cast<std::int64_t>(item);
  }
  return bins;
}

}  // namespace heddle
