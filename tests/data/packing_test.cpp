#include "data/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/random.h"

namespace heddle {
namespace {

using testing::ElementsAre;

TEST(Packing, FirstFitDecreasingByHand) {
  // 7 | 6 | 5+3 | 4 -> 6+4, 7+2, ... : sorted 7 6 5 4 3 2 into bins of 10 gives {7, 3}, {6, 4}, {5, 2}.
  const std::vector<std::int64_t> sizes = {3, 6, 5, 4, 7, 2};
  const Bins bins = first_fit_decreasing(sizes, 10);
  ASSERT_EQ(bins.count(), 3);
  EXPECT_THAT(bins[0], ElementsAre(0, 4));
  EXPECT_THAT(bins[1], ElementsAre(1, 3));
  EXPECT_THAT(bins[2], ElementsAre(2, 5));
}

TEST(Packing, EqualSizesKeepTheirOrder) {
  const Bins bins = first_fit_decreasing(std::vector<std::int64_t>(7, 4), 12);
  ASSERT_EQ(bins.count(), 3);
  EXPECT_THAT(bins[0], ElementsAre(0, 1, 2));
  EXPECT_THAT(bins[2], ElementsAre(6));
  EXPECT_EQ(first_fit_decreasing({}, 5).count(), 0);
}

/// The same by its definition, looking at every bin.
std::int64_t bins_by_definition(std::vector<std::int64_t> sizes, std::int64_t capacity) {
  std::sort(sizes.rbegin(), sizes.rend());
  std::vector<std::int64_t> room;
  for (const auto size : sizes) {
    const auto bin = std::find_if(room.begin(), room.end(), [&](auto r) { return r >= size; });
    if (bin == room.end()) {
      room.push_back(capacity - size);
    } else {
      *bin -= size;
    }
  }
  return static_cast<std::int64_t>(room.size());
}

TEST(Packing, EveryItemOnceNoBinOverfullAsManyBinsAsTheDefinitionGives) {
  Random random(5, 0);
  for (const std::int64_t capacity : {1, 10, 257}) {
    for (const std::size_t count : {1u, 2u, 33u, 500u}) {
      std::vector<std::int64_t> sizes(count);
      for (auto& size : sizes) size = 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(capacity)));
      const Bins bins = first_fit_decreasing(sizes, capacity);
      std::vector<int> seen(count, 0);
      std::int64_t first_of_bin = -1;
      for (std::int64_t b = 0; b < bins.count(); ++b) {
        std::int64_t sum = 0;
        for (const auto item : bins[b]) {
          sum += sizes[static_cast<std::size_t>(item)];
          ++seen[static_cast<std::size_t>(item)];
        }
        EXPECT_LE(sum, capacity);
        EXPECT_TRUE(std::is_sorted(bins[b].begin(), bins[b].end()));
        EXPECT_GT(bins[b].front(), first_of_bin);
        first_of_bin = bins[b].front();
      }
      EXPECT_EQ(seen, std::vector<int>(count, 1));
      EXPECT_EQ(bins.count(), bins_by_definition(sizes, capacity));
    }
  }
}

}  // namespace
}  // namespace heddle
