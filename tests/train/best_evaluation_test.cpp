#include "train/best_evaluation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace heddle {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();

struct Case {
  std::vector<double> losses;  // of steps 10, 20, ...
  std::int64_t patience;
  std::int64_t stop, best;  // steps; 0: never, none
};

/// Where a run with these evaluations stops, and which was the best until then.
std::pair<std::int64_t, std::int64_t> outcome_of(const Case& one) {
  BestEvaluation best;
  std::int64_t step = 0;
  for (const double loss : one.losses) {
    step += 10;
    best.add(step, loss);
    if (best.is_past(one.patience)) return {step, best.step};
  }
  return {0, best.step};
}

// By hand, from the rule of Hugging Face's EarlyStoppingCallback: the counter is 0 at a new best, else one more; the
// run ends where it reaches the patience.
TEST(BestEvaluation, EndsTheRunAfterSoManyInARowWithoutANewBest) {
  const std::vector<Case> cases = {
      {{5, 4, 3, 2, 1}, 1, 0, 50},            // ever better
      {{5, 4, 4.5, 3}, 1, 30, 20},            // patience 1: the first that is worse
      {{5, 4, 4.5, 3, 3.5, 3.5}, 2, 60, 40},  // a new best between starts the count anew
      {{5, 4, 4, 4}, 2, 40, 20},              // equal is no better, and the earlier one stays the best
      {{5, 6, 5.5, 5.25}, 3, 40, 10},         // falling again, but never below the best
      {{5, 6, 7, 8}, 0, 0, 10},               // patience 0: never
      {{5, kNan, 4, kInfinity, kNan}, 2, 50, 30},
      {{kNan, kNan, 3}, 2, 20, 0},
      {{kNan, 3, 2}, 2, 0, 30},
      {{-1, -2, -1.5}, 5, 0, 20},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(outcome_of(one), std::pair(one.stop, one.best)) << testing::PrintToString(one.losses);
  }
}

TEST(BestEvaluation, SaysWhetherItIsANewBest) {
  BestEvaluation best;
  EXPECT_FALSE(best.is_known());
  EXPECT_TRUE(best.add(3, 2.5));
  EXPECT_FALSE(best.add(6, 2.5));
  EXPECT_TRUE(best.add(9, 2.25));
  EXPECT_EQ(best, (BestEvaluation{.step = 9, .loss = 2.25, .evaluations_since = 0}));
}

}  // namespace
}  // namespace heddle
