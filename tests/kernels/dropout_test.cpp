#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "base/threads.h"
#include "kernels/cpu/kernels.h"

namespace heddle {
namespace {

struct Setting {
  double p = 0.1;
  std::int64_t stream = 0;
  std::uint64_t seed = 0, micro_batch = 0;
  std::int64_t first_row = 0;
};

std::vector<float> drop(const Setting& setting, std::int64_t tokens, std::int64_t width, DType type = DType::f32,
                        bool in_place = false, float value = 3.0f) {
  const std::vector<float> ones(static_cast<std::size_t>(tokens * width), value);
  std::vector<std::byte> x(ones.size() * dtype_bytes(type)), y(x.size());
  convert(ones.data(), DType::f32, x.data(), type, tokens * width);
  Scalars scalars;
  scalars.tokens = tokens;
  scalars.seed = setting.seed;
  scalars.micro_batch = setting.micro_batch;
  const Attributes attributes{{"p", setting.p}, {"stream", setting.stream}, {"first_row", setting.first_row}};
  const std::array in{TensorView{x.data(), type, {tokens, width}}};
  const std::array out{TensorView{in_place ? x.data() : y.data(), type, {tokens, width}}};
  cpu::dropout({in, out, attributes, scalars, {}});
  std::vector<float> result(ones.size());
  convert(out[0].data, type, result.data(), DType::f32, tokens * width);
  return result;
}

TEST(Dropout, EachElementFollowsItsDocumentedWord) {
  const Setting setting{0.3, 7, 0xfedcba9876543210ULL, 12345};
  for (std::int64_t width : {1, 3, 4, 17, 64, 67, 130}) {
    const std::int64_t tokens = 9;
    const auto y = drop(setting, tokens, width);
    EXPECT_EQ(y, drop(setting, tokens, width, DType::f32, true));
    for (std::int64_t t = 0; t < tokens; ++t) {
      for (std::int64_t i = 0; i < width; ++i) {
        const auto counter = static_cast<std::uint64_t>(t * ((width + 3) / 4) + i / 4);
        const auto words = philox(setting.seed, counter, std::uint64_t{7} << 40 ^ setting.micro_batch);
        const bool kept = static_cast<double>(uniform_from(words[static_cast<std::size_t>(i % 4)])) >= setting.p;
        // x / (1 - p), within a rounding of 1 / (1 - p) and one of the product.
        EXPECT_NEAR(y[static_cast<std::size_t>(t * width + i)], kept ? 3.0 / 0.7 : 0.0, 5e-7) << t << ", " << i;
      }
    }
  }
}

TEST(Dropout, ATileHasTheMaskOfItsRows) {
  const auto all = drop({0.3, 7, 1, 2}, 9, 67), tile = drop({0.3, 7, 1, 2, 4}, 5, 67);
  EXPECT_TRUE(std::equal(tile.begin(), tile.end(), all.begin() + 4 * 67));
}

TEST(Dropout, KeepsTheShareOneMinusP) {
  for (double p : {0.05, 0.5, 0.9}) {
    const auto y = drop({p, 1, 99, 3}, 200, 500);
    double kept = 0.0;
    for (float value : y) kept += value != 0.0f ? 1.0 : 0.0;
    const double n = 200.0 * 500.0;
    EXPECT_NEAR(kept / n, 1.0 - p, 5.0 * std::sqrt(p * (1.0 - p) / n)) << p;
  }
}

TEST(Dropout, ProbabilityZeroKeepsEveryBit) {
  for (float value : drop({0.0, 1, 1, 1}, 3, 21)) EXPECT_EQ(value, 3.0f);
}

TEST(Dropout, MaskDoesNotDependOnTypeOrThreads) {
  const Setting setting{0.4, 2, 5, 6};
  set_threads(1);
  const auto alone = drop(setting, 300, 200);
  set_threads(3);
  EXPECT_EQ(drop(setting, 300, 200), alone);
  for (DType type : {DType::bf16, DType::f16}) {
    const auto y = drop(setting, 300, 200, type);
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i] == 0.0f, alone[i] == 0.0f);
  }
}

TEST(Dropout, MasksOfStreamsMicroBatchesAndSeedsDiffer) {
  const auto base = drop({0.5, 1, 1, 1}, 8, 40);
  EXPECT_NE(base, drop({0.5, 2, 1, 1}, 8, 40));
  EXPECT_NE(base, drop({0.5, 1, 2, 1}, 8, 40));
  EXPECT_NE(base, drop({0.5, 1, 1, 2}, 8, 40));
}

TEST(Dropout, NotANumberIsDroppedOnlyWithItsElement) {
  const auto y = drop({0.5, 1, 1, 1}, 4, 40, DType::f32, false, std::nanf(""));
  const auto mask = drop({0.5, 1, 1, 1}, 4, 40);
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), mask[i] != 0.0f);
}

}  // namespace
}  // namespace heddle
