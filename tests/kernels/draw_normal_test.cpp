#include "kernels/cpu/draw_normal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "base/random.h"
#include "instruction_sets.h"

namespace heddle::cpu {
namespace {

/// The formula of Random::normal() in long double, from the same words.
long double exact_normal(std::uint64_t key, std::uint64_t stream, std::int64_t index) {
  const auto words = philox(key, static_cast<std::uint64_t>(index / 2), stream);
  const auto uniform = [](std::uint64_t first, std::uint64_t second) {
    return static_cast<long double>(((first >> 5) << 26) | (second >> 6)) * 0x1.0p-53L;
  };
  const long double radius = std::sqrt(-2.0L * std::log(1.0L - uniform(words[0], words[1])));
  const long double angle = 2.0L * std::numbers::pi_v<long double> * uniform(words[2], words[3]);
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

TEST(DrawNormal, RoundsTheFormulaOnEveryInstructionSet) {
  constexpr std::uint64_t kKey = 0x123456789abcdef, kStream = std::uint64_t{7} << 32 | 5;
  constexpr std::int64_t kFirst = (std::int64_t{1} << 33) - 501;  // the counter's lower half runs over
  constexpr double kSpread = 0.75;
  test::with_each_instruction_set([&](const char* name) {
    std::vector<float> values(4003);
    draw_normal(kKey, kStream, kFirst, kSpread, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto exact = exact_normal(kKey, kStream, kFirst + static_cast<std::int64_t>(i)) * kSpread;
      // Half a unit of f32, and 4 of f64 before it is rounded: 2^-24 + 2^-50.
      ASSERT_NEAR(static_cast<double>(values[i]), static_cast<double>(exact),
                  static_cast<double>(std::abs(exact)) * (0x1.0p-24 + 0x1.0p-50))
          << name << ", draw " << i;
    }
  });
}

TEST(DrawNormal, BitsDependNeitherOnTheInstructionSetNorOnTheFirstDraw) {
  constexpr std::int64_t kDraws = 10000;
  std::vector<float> expected;
  test::with_each_instruction_set([&](const char* name) {
    std::vector<float> whole(kDraws);
    draw_normal(3, 9, 0, 0.02, whole);
    if (expected.empty()) expected = whole;
    ASSERT_EQ(whole, expected) << name;
    for (const std::int64_t first : {1, 2, 31, 32, 33, 4999}) {
      std::vector<float> rest(kDraws - static_cast<std::size_t>(first));
      draw_normal(3, 9, first, 0.02, rest);
      ASSERT_EQ(rest, std::vector<float>(expected.begin() + first, expected.end())) << name << " from " << first;
    }
  });
}

TEST(DrawNormal, AgreesWithTheScalarGenerator) {
  std::vector<float> values(20000);
  draw_normal(11, 4, 0, 1.0, values);
  Random random(11, 4);
  std::size_t others = 0;
  for (const float value : values) others += value == static_cast<float>(random.normal()) ? 0 : 1;
  // A rounding of f32 turns on some units of f64 in about one of 2^27 draws.
  EXPECT_LE(others, 1u);
}

}  // namespace
}  // namespace heddle::cpu
