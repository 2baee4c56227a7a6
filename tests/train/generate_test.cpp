#include "train/generate.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>

namespace heddle {
namespace {

// Probabilities 0.5, 0.3, 0.15, 0.05 at temperature 1.
std::vector<float> logits() {
  std::vector<float> values;
  for (const double p : {0.15, 0.5, 0.05, 0.3}) values.push_back(static_cast<float>(std::log(p)));
  return values;
}

std::map<std::int32_t, double> shares(const SamplingOptions& options) {
  constexpr int kDraws = 20000;
  std::map<std::int32_t, double> counts;
  const auto values = logits();
  for (std::uint64_t draw = 0; draw < kDraws; ++draw) counts[choose_token(values, options, draw)] += 1.0 / kDraws;
  return counts;
}

constexpr double kThreeSigma = 0.011;  // of a share near one half over 20,000 draws

TEST(ChooseToken, GreedyTakesTheGreatestLogit) { EXPECT_EQ(choose_token(logits(), {}, 0), 1); }

TEST(ChooseToken, GreedyTakesTheFirstOfEquals) {
  const std::vector<float> values = {1, 3, 3, 2};
  EXPECT_EQ(choose_token(values, {}, 0), 1);
}

TEST(ChooseToken, DrawsByProbability) {
  const auto found = shares({.do_sample = true});
  EXPECT_NEAR(found.at(0), 0.15, kThreeSigma);
  EXPECT_NEAR(found.at(1), 0.5, kThreeSigma);
  EXPECT_NEAR(found.at(2), 0.05, kThreeSigma);
  EXPECT_NEAR(found.at(3), 0.3, kThreeSigma);
}

TEST(ChooseToken, TemperatureRaisesProbabilitiesToItsInverse) {
  const auto found = shares({.do_sample = true, .temperature = 0.5});
  const double total = 0.15 * 0.15 + 0.5 * 0.5 + 0.05 * 0.05 + 0.3 * 0.3;
  EXPECT_NEAR(found.at(1), 0.25 / total, kThreeSigma);
}

TEST(ChooseToken, TopKKeepsTheMostLikely) {
  const auto found = shares({.do_sample = true, .top_k = 2});
  EXPECT_EQ(found.size(), 2u);
  EXPECT_NEAR(found.at(1), 0.5 / 0.8, kThreeSigma);
}

TEST(ChooseToken, TopPKeepsTheFewestThatReachIt) {
  EXPECT_EQ(shares({.do_sample = true, .top_p = 0.5}).size(), 1u);
  EXPECT_EQ(shares({.do_sample = true, .top_p = 0.81}).size(), 3u);
  EXPECT_EQ(shares({.do_sample = true, .top_p = 0.0}).size(), 1u);
}

TEST(ChooseToken, TheSameDrawGivesTheSameToken) {
  const auto values = logits();
  const SamplingOptions options{.do_sample = true, .seed = 9};
  for (std::uint64_t draw = 0; draw < 50; ++draw) {
    EXPECT_EQ(choose_token(values, options, draw), choose_token(values, options, draw));
  }
}

}  // namespace
}  // namespace heddle
