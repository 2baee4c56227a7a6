#include "monitor/monitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "monitor/memory_bill.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Two ranks; rank 1 needs most. Peaks and classes are made up: 100 + 40 + 300 = 440 and so on.
constexpr const char* kPlan = R"({"num_parameters": 25, "num_trainable_parameters": 25, "ranks": [
  {"rank": 0, "tiers": {"device": {"peak": 430, "at_peak": {"parameters": 100, "gradients": 40, "activations": 290},
                                   "classes": {"parameters": 100, "gradients": 100, "activations": 290}},
                        "host": {"peak": 0, "at_peak": {}, "classes": {}}}},
  {"rank": 1, "tiers": {"device": {"peak": 440, "at_peak": {"parameters": 100, "gradients": 40, "activations": 300},
                                   "classes": {"parameters": 100, "gradients": 100, "activations": 300}},
                        "host": {"peak": 0, "at_peak": {}, "classes": {}}}}]})";

TEST(MemoryBill, ComparesTheRankThatNeedsMost) {
  const auto plan = Json::parse(kPlan);
  const auto tiers = compare_memory(plan, plan);
  ASSERT_EQ(tiers.size(), 1u);
  EXPECT_EQ(tiers[0].tier, "device");
  EXPECT_EQ(tiers[0].ranks, 2);
  EXPECT_EQ(tiers[0].planned.peak, 440u);
  EXPECT_EQ(tiers[0].held.at_peak[4], 300u);   // activations
  EXPECT_EQ(tiers[0].held.greatest[2], 100u);  // gradients
  EXPECT_TRUE(tiers[0].is_equal);
}

TEST(MemoryBill, OneByteOfAnyRankIsADifference) {
  const auto plan = Json::parse(kPlan);
  auto memory = plan;
  memory["ranks"][0]["tiers"]["device"]["at_peak"]["gradients"] = 41;
  EXPECT_FALSE(compare_memory(plan, memory)[0].is_equal);
}

TEST(MemoryBill, WhatIsMissingIsNamed) {
  try {
    compare_memory(Json::parse(R"({"ranks": [{"rank": 0}]})"), Json::parse(kPlan));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "plan.json: tiers is missing");
  }
}

class MonitorRun : public ::testing::Test {
 protected:
  Monitor::Options options(std::int64_t first_step, std::int64_t max_steps) const {
    Monitor::Options options;
    options.output_dir = folder_.path() / "out";
    options.first_step = first_step;
    options.max_steps = max_steps;
    options.logging_steps = 1000000;
    options.tensorboard = true;
    options.title = "a <small> model";
    return options;
  }
  static StepMetrics step(std::int64_t number) {
    StepMetrics metrics;
    metrics.step = number;
    metrics.loss = 4.0 / static_cast<double>(number);
    metrics.grad_norm = 1.0;
    metrics.step_time = 2.0;
    metrics.time.forward = 0.5;
    metrics.time.backward = 1.0;
    return metrics;
  }
  std::string written(const char* name) const { return text_of(folder_.path() / "out" / name); }
  std::filesystem::path path(const char* name) const { return folder_.path() / "out" / name; }

 private:
  TemporaryFolder folder_;
};

TEST_F(MonitorRun, LeavesMetricsEventsPictureAndReport) {
  {
    Monitor monitor(options(1, 4));
    for (int i = 1; i <= 4; ++i) monitor.on_step(step(i));
    monitor.on_evaluation({4, 1.5, std::exp(1.5), 100});
    write_text_to(path("plan.json"), kPlan);
    write_text_to(path("memory.json"), kPlan);
    monitor.finish();
  }
  EXPECT_EQ(read_metrics(path("metrics.jsonl")).steps.size(), 4u);
  EXPECT_FALSE(std::filesystem::is_empty(path("runs")));
  EXPECT_THAT(written("loss.svg"), HasSubstr("a &lt;small&gt; model"));
  const auto report = written("report.html");
  EXPECT_THAT(report, HasSubstr("Planned and held agree to the byte."));
  EXPECT_THAT(report, HasSubstr("<td>activations</td><td>300</td><td>300</td>"));
  EXPECT_THAT(report, HasSubstr("<td>backward</td><td>4.00</td><td>50.0 %</td><td>1000.00</td>"));  // of 4 * 2.0 s
  EXPECT_THAT(report, HasSubstr("<td>other</td><td>2.00</td><td>25.0 %</td>"));
  EXPECT_THAT(report, HasSubstr("best evaluation loss, step 4"));
}

TEST_F(MonitorRun, TheReportNeedsNoOtherFile) {
  Monitor monitor(options(1, 1));
  monitor.on_step(step(1));
  monitor.finish();
  const auto report = written("report.html");
  for (const char* reference : {"src=", "href=", "url(", "@import", "http:", "https:"}) {
    EXPECT_THAT(report, Not(HasSubstr(reference)));
  }
}

TEST_F(MonitorRun, AResumedRunReportsTheWholeRun) {
  {
    Monitor monitor(options(1, 6));
    for (int i = 1; i <= 5; ++i) monitor.on_step(step(i));
  }
  Monitor monitor(options(4, 6));
  for (int i = 4; i <= 6; ++i) monitor.on_step(step(i));
  monitor.finish();
  const auto history = read_metrics(path("metrics.jsonl"));
  ASSERT_EQ(history.steps.size(), 6u);
  for (int i = 1; i <= 6; ++i) EXPECT_EQ(history.steps[static_cast<std::size_t>(i - 1)].step, i);
  EXPECT_THAT(written("report.html"), HasSubstr("<b>6</b><span>optimizer steps</span>"));
}

TEST_F(MonitorRun, ARunWithoutAStepStillHasAReport) {
  Monitor monitor(options(1, 0));
  monitor.finish();
  EXPECT_THAT(written("report.html"), Not(HasSubstr("Where the time went")));
  EXPECT_THAT(written("loss.svg"), HasSubstr("</svg>"));
}

}  // namespace
}  // namespace heddle
