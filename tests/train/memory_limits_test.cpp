#include "train/memory_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;

MemoryPlan plan_of(std::uint64_t device, std::uint64_t host) {
  MemoryPlan plan;
  plan.device.peak = device;
  plan.host.peak = host;
  return plan;
}

RunConfig budgets(std::optional<std::uint64_t> device, std::optional<std::uint64_t> total) {
  RunConfig run;
  run.device_memory = device;
  run.memory_budget = total;
  return run;
}

std::string refusal(const MemoryPlan& plan, const RunConfig& run, std::uint64_t available) {
  try {
    require_fit(plan, memory_limits(run, available), run);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(MemoryLimits, AreTheLeastOfTheBudgetsAndWhatThereIs) {
  const MemoryLimits none = memory_limits(budgets({}, {}), 900);
  EXPECT_EQ(none.device, 900U);
  EXPECT_EQ(none.total, 900U);
  const MemoryLimits both = memory_limits(budgets(300, 500), 900);
  EXPECT_EQ(both.device, 300U);
  EXPECT_EQ(both.total, 500U);
  EXPECT_EQ(memory_limits(budgets(600, 500), 900).device, 500U);
  EXPECT_EQ(memory_limits(budgets({}, 1000), 900).total, 900U);
}

TEST(MemoryLimits, TheExcessIsTheGreaterOfTheDevicesAndOfBothTiers) {
  const MemoryLimits limits = memory_limits(budgets(300, 500), 900);
  EXPECT_EQ(limits.excess(300, 200), 0);
  EXPECT_EQ(limits.excess(310, 100), 10);
  EXPECT_EQ(limits.excess(290, 250), 40);
  EXPECT_EQ(limits.excess(200, 100), -100);
}

TEST(MemoryLimits, ARefusalSaysHowManyBytesAreMissingAndOfWhat) {
  EXPECT_EQ(refusal(plan_of(300, 200), budgets(300, 500), 900), "");
  EXPECT_THAT(refusal(plan_of(4396, 0), budgets(300, {}), 9000),
              AllOf(HasSubstr("device_memory"), HasSubstr("4096 bytes")));
  EXPECT_THAT(refusal(plan_of(300, 207), budgets(300, 500), 900),
              AllOf(HasSubstr("memory_budget"), HasSubstr(" 7 bytes")));
  EXPECT_THAT(refusal(plan_of(800, 111), budgets({}, {}), 900),
              AllOf(HasSubstr("available memory"), HasSubstr(" 11 bytes"), HasSubstr("on host")));
}

}  // namespace
}  // namespace heddle
