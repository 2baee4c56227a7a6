#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "base/error.h"

namespace heddle {

std::vector<MixturePass> mix(std::span<const std::int64_t> sizes, std::span<const double> weights) {
  constexpr double kMostItems = 0x1p53;
  HEDDLE_CHECK(sizes.size() == weights.size());
  std::vector<MixturePass> passes;
  std::int64_t first = 0;
  const auto add = [&](std::size_t source, std::int64_t count, bool is_part) {
    if (count == 0) return;
    passes.push_back({source, sizes[source], first, count, is_part});
    first += count;
  };
  for (std::size_t source = 0; source < sizes.size(); ++source) {
    const std::int64_t size = sizes[source];
    if (size == 0) continue;
    const double wanted = std::max(1.0, std::round(weights[source] * static_cast<double>(size)));
    if (!(wanted + static_cast<double>(first) < kMostItems)) {
      fail("a file of {} rows has weight {}; expected one that makes fewer rows", size, weights[source]);
    }
    const auto count = static_cast<std::int64_t>(wanted);
    add(source, count / size * size, false);
    add(source, count % size, true);
  }
  return passes;
}

std::int64_t count_items(std::span<const MixturePass> passes) {
  return passes.empty() ? 0 : passes.back().first + passes.back().count;
}

const MixturePass& find_pass(std::span<const MixturePass> passes, std::int64_t index) {
  HEDDLE_CHECK(index >= 0 && index < count_items(passes));
  const auto after = std::upper_bound(passes.begin(), passes.end(), index,
                                      [](std::int64_t i, const MixturePass& pass) { return i < pass.first; });
  return *std::prev(after);
}

}  // namespace heddle
