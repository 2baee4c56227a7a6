#include "base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

namespace heddle {
namespace {

using Words = std::array<std::uint32_t, 4>;

// Random123 1.14, tests/kat_vectors, philox4x32 10: counter (four words, least first), key (two words), result.
TEST(Philox, GivesThePublishedKnownAnswers) {
  EXPECT_EQ(philox(0, 0, 0), (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  EXPECT_EQ(philox(~0ull, ~0ull, ~0ull), (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox(0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x0370734413198a2eull),
            (Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Philox, UniformFromIsInTheHalfOpenUnitInterval) {
  EXPECT_EQ(uniform_from(0), 0.0f);
  EXPECT_EQ(uniform_from(0x80000000u), 0.5f);
  EXPECT_LT(uniform_from(0xffffffffu), 1.0f);
}

TEST(Random, AStreamIsTheSequenceOfItsCounters) {
  Random random(5, 9);
  for (std::uint64_t block = 0; block < 3; ++block) {
    for (const auto word : philox(5, block, 9)) EXPECT_EQ(random.word(), word);
  }
}

TEST(Random, BelowIsInRangeAndEven) {
  Random random(1, 1);
  constexpr int kDraws = 70000;
  std::array<int, 7> counts{};
  for (int i = 0; i < kDraws; ++i) ++counts.at(random.below(7));
  // Chi-square with 6 degrees of freedom exceeds 22.46 once in a thousand seeds; this seed is fixed.
  double chi_square = 0;
  for (const int count : counts) chi_square += (count - kDraws / 7.0) * (count - kDraws / 7.0) / (kDraws / 7.0);
  EXPECT_LT(chi_square, 22.46);
  EXPECT_EQ(random.below(1), 0u);
  const std::uint64_t large = (std::uint64_t{1} << 63) + 1;  // half of all draws must be thrown away
  for (int i = 0; i < 1000; ++i) ASSERT_LT(random.below(large), large);
}

TEST(Random, UniformAndNormalHaveTheirMoments) {
  Random random(11, 4);
  constexpr int kDraws = 200000;
  double uniform_sum = 0, sum = 0, squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double uniform = random.uniform();
    ASSERT_GE(uniform, 0.0);
    ASSERT_LT(uniform, 1.0);
    uniform_sum += uniform;
    const double normal = random.normal();
    ASSERT_TRUE(std::isfinite(normal));
    sum += normal;
    squares += normal * normal;
  }
  // Four standard errors: 1/sqrt(12 n), 1/sqrt(n), sqrt(2/n).
  EXPECT_NEAR(uniform_sum / kDraws, 0.5, 4 / std::sqrt(12.0 * kDraws));
  EXPECT_NEAR(sum / kDraws, 0.0, 4 / std::sqrt(1.0 * kDraws));
  EXPECT_NEAR(squares / kDraws, 1.0, 4 * std::sqrt(2.0 / kDraws));
}

}  // namespace
}  // namespace heddle
