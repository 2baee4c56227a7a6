#include "models/rope_frequencies.h"

#include <gtest/gtest.h>

#include <vector>

// The numbers are those of transformers 5.24.0, ROPE_INIT_FUNCTIONS of modeling_rope_utils.py, with its float32
// replaced by float64; head_dim 16 throughout.
namespace heddle {
namespace {

void expect_near(const RopeFrequencies& got, const std::vector<double>& inv_freq, double attention_factor) {
  ASSERT_EQ(got.inv_freq.size(), inv_freq.size());
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    EXPECT_NEAR(got.inv_freq[i], inv_freq[i], 4e-15 * inv_freq[i]) << "pair " << i;  // a few roundings of pow
  }
  EXPECT_NEAR(got.attention_factor, attention_factor, 1e-15);
}

TEST(RopeFrequencies, StandardFollowsTheFormula) {
  RopeConfig rope;
  rope.theta = 256;  // 256^(-2i/16) = 2^-i
  expect_near(rope_frequencies(rope, 16, 64, 64), {1, 0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625, 0.0078125}, 1);
}

TEST(RopeFrequencies, PartialRotatesTheFirstDimensionsOnly) {
  RopeConfig rope;
  rope.theta = 256;
  rope.partial_rotary_factor = 0.5;  // 8 dimensions: 256^(-2i/8)
  EXPECT_EQ(rotary_dimensions(rope, 16), 8);
  expect_near(rope_frequencies(rope, 16, 64, 64), {1, 0.25, 0.0625, 0.015625}, 1);
}

TEST(RopeFrequencies, Linear) {
  RopeConfig rope;
  rope.type = RopeType::linear;
  rope.factor = 2.5;
  expect_near(rope_frequencies(rope, 16, 64, 64),
              {0.4, 0.12649110640673517, 0.04, 0.012649110640673516, 0.004, 0.0012649110640673515, 0.0004,
               0.00012649110640673518},
              1);
}

TEST(RopeFrequencies, DynamicStretchesBeyondTheOriginalLengthOnly) {
  RopeConfig rope;
  rope.type = RopeType::dynamic;
  rope.theta = 100;
  rope.factor = 4;
  rope.original_max_position_embeddings = 64;
  const std::vector<double> original = {1.0, 0.5623413251903491,   0.31622776601683794, 0.17782794100389226,
                                        0.1, 0.056234132519034905, 0.03162277660168379, 0.01778279410038923};
  expect_near(rope_frequencies(rope, 16, 64, 40), original, 1);
  expect_near(rope_frequencies(rope, 16, 64, 64), original, 1);
  const std::vector<double> stretched = {1.0,
                                         0.47519712623361354,
                                         0.22581230878068476,
                                         0.10730536020075877,
                                         0.050991198796863334,
                                         0.02423087113147634,
                                         0.011514440327814585,
                                         0.005471628953965917};
  expect_near(rope_frequencies(rope, 16, 32, 100), stretched, 1);
  rope.original_max_position_embeddings = 0;
  expect_near(rope_frequencies(rope, 16, 64, 100), stretched, 1);
}

TEST(RopeFrequencies, Yarn) {
  RopeConfig rope;
  rope.type = RopeType::yarn;
  rope.theta = 500;
  rope.factor = 4;
  rope.original_max_position_embeddings = 16;
  rope.beta_fast = 4;
  rope.beta_slow = 0.5;
  const std::vector<double> expected = {1.0,
                                        0.3448974733700777,
                                        0.10573712634405642,
                                        0.024312311811651825,
                                        0.011180339887498949,
                                        0.005141427971489448,
                                        0.0023643540225079395,
                                        0.0010872796380204908};
  expect_near(rope_frequencies(rope, 16, 64, 64), expected, 1.138629436111989);
  rope.attention_factor = 1.25;
  expect_near(rope_frequencies(rope, 16, 64, 64), expected, 1.25);
}

TEST(RopeFrequencies, YarnWithoutTruncationAndWithMscales) {
  RopeConfig rope;
  rope.type = RopeType::yarn;
  rope.theta = 1e6;
  rope.factor = 4;
  rope.original_max_position_embeddings = 32768;
  rope.truncate = false;
  rope.mscale = 0.707;
  rope.mscale_all_dim = 1;
  expect_near(rope_frequencies(rope, 16, 131072, 131072),
              {1.0, 0.17782794100389226, 0.03162277660168379, 0.0055172704751341225, 0.0006074079378798391,
               4.445698525097307e-05, 7.905694150420949e-06, 1.4058533129758728e-06},
              0.964326914892074);
}

TEST(RopeFrequencies, YarnWithTruncation) {
  RopeConfig rope;
  rope.type = RopeType::yarn;
  rope.theta = 1e6;
  rope.factor = 4;
  rope.original_max_position_embeddings = 32768;
  expect_near(rope_frequencies(rope, 16, 131072, 131072),
              {1.0, 0.17782794100389226, 0.03162277660168379, 0.004217559938927618, 0.0005, 4.445698525097307e-05,
               7.905694150420949e-06, 1.4058533129758728e-06},
              1.138629436111989);
}

TEST(RopeFrequencies, Llama3) {
  RopeConfig rope;
  rope.type = RopeType::llama3;
  rope.theta = 500000;
  rope.factor = 8;
  rope.low_freq_factor = 1;
  rope.high_freq_factor = 4;
  rope.original_max_position_embeddings = 8192;
  expect_near(rope_frequencies(rope, 16, 131072, 131072),
              {1.0, 0.19392274474868576, 0.03760603093086393, 0.0072926647372171085, 0.0005248461609929547,
               3.428102195952591e-05, 6.647869871181236e-06, 1.2891731721515574e-06},
              1);
}

TEST(RopeFrequencies, LongropeChoosesItsFactorsByTheLength) {
  RopeConfig rope;
  rope.type = RopeType::longrope;
  rope.partial_rotary_factor = 0.75;
  rope.original_max_position_embeddings = 4096;
  rope.factor = 131072.0 / 4096.0;
  rope.short_factor = {1.0, 1.02, 1.03, 1.05, 1.1, 1.2};
  rope.long_factor = {1.08, 1.11, 1.6, 4.79, 12.2, 64.84};
  expect_near(rope_frequencies(rope, 16, 131072, 4096),
              {1.0, 0.21121908725802782, 0.0450639692583765, 0.009523809523809525, 0.0019585769909380765,
               0.0003867990694677314},
              1.1902380714238083);
  expect_near(rope_frequencies(rope, 16, 131072, 4097),
              {0.9259259259259258, 0.1940932153181877, 0.029009930210079873, 0.0020876826722338203,
               0.00017659300737966267, 7.158526887126429e-06},
              1.1902380714238083);
}

}  // namespace
}  // namespace heddle
