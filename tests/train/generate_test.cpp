#include "train/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/random.h"

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

TEST(ChooseToken, RefusesLogitsThatAreNoNumbers) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::vector<float>> bad = {
      {kNan, 1, 2}, {1, 2, kNan}, {1, kInfinity, 2}, {-kInfinity, -kInfinity, -kInfinity}};
  for (const auto& values : bad) {
    EXPECT_THROW(choose_token(values, {}, 0), Error);
    EXPECT_THROW(choose_token(values, {.do_sample = true}, 0), Error);
  }
  const std::vector<float> barred = {-kInfinity, 1, -kInfinity};  // two tokens never come
  EXPECT_EQ(choose_token(barred, {.do_sample = true}, 3), 1);
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

/// The definition: all tokens sorted, most likely first and equals by id; top_k, then top_p of what is left; the draw's
/// place in the sum.
std::int32_t by_sorting(const std::vector<float>& logits, const SamplingOptions& options, std::uint64_t draw) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto logit = [&](std::int32_t token) { return logits[static_cast<std::size_t>(token)]; };
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logit(a) > logit(b); });
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(options.top_k)));
  std::vector<double> sums;  // of probabilities, up to a factor
  double sum = 0;
  for (const auto token : order) {
    sums.push_back(sum += std::exp(static_cast<double>(logit(token) - logit(order[0])) / options.temperature));
  }
  std::size_t count = 1;
  while (count < sums.size() && sums[count - 1] < options.top_p * sum) ++count;
  const double place = Random(options.seed, draw).uniform() * sums[count - 1];
  const auto found = std::upper_bound(sums.begin(), sums.begin() + static_cast<std::ptrdiff_t>(count - 1), place);
  return order[static_cast<std::size_t>(found - sums.begin())];
}

TEST(ChooseToken, AgreesWithSortingTheWholeVocabulary) {
  std::vector<float> values(2000);
  Random random(3, 1);
  for (float& value : values) value = std::round(static_cast<float>(4 * random.normal()) * 8) / 8;  // many equals
  for (const double top_p : {1.0, 0.9, 0.3}) {
    for (const std::int64_t top_k : {0, 1, 50, 1999, 5000}) {
      for (std::uint64_t draw = 0; draw < 20; ++draw) {
        const SamplingOptions options{.do_sample = true, .temperature = 1.5, .top_k = top_k, .top_p = top_p, .seed = 7};
        EXPECT_EQ(choose_token(values, options, draw), by_sorting(values, options, draw))
            << "top_k " << top_k << ", top_p " << top_p << ", draw " << draw;
      }
    }
  }
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
