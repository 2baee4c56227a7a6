// Learning rates against transformers.get_scheduler and DeepSpeed's formulas (golden/deepspeed_config/schedules.json),
// and against values worked out by hand.
#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numbers>

#include "base/error.h"
#include "config/schedule_names.h"
#include "formats/json.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

fs::path reference_data() {
  const char* path = std::getenv("HEDDLE_DATA");
  return path != nullptr ? fs::path(path) : fs::path(HEDDLE_SOURCE_DIR) / "../shared/data";
}

/// The schedule as a run file brings it: Hugging Face's keys, or `deepspeed` with an optimizer and a scheduler.
RunConfig run_of(const Json& test, double rate, std::int64_t steps) {
  Json run = test.value("run", Json::object());
  run["max_steps"] = steps;
  run["learning_rate"] = rate;
  run["weight_decay"] = 0.01;
  run["max_grad_norm"] = 1.0;
  if (test.contains("scheduler")) {
    const Json params = {{"lr", rate}, {"weight_decay", 0.01}};
    run["deepspeed"] = {{"train_micro_batch_size_per_gpu", 1},
                        {"gradient_accumulation_steps", 1},
                        {"gradient_clipping", 1.0},
                        {"optimizer", {{"type", "AdamW"}, {"params", params}}},
                        {"scheduler", test["scheduler"]}};
  }
  return RunFile::parse(run.dump(), "run.json", {}).config();
}

ScheduleConfig named(const std::string& type, std::map<std::string, double> numbers = {}, std::int64_t warmup = 0) {
  ScheduleConfig schedule;
  schedule.type = type;
  schedule.numbers = std::move(numbers);
  schedule.warmup_steps = warmup;
  return schedule;
}

TEST(Schedule, EveryReferenceScheduleIsFollowedForItsFortySteps) {
  const auto file = reference_data() / "golden/deepspeed_config/schedules.json";
  if (!fs::exists(file)) GTEST_SKIP() << file << " is absent";
  const auto golden = read_json_file(file);
  const auto rate = golden["learning_rate"].get<double>();
  const auto steps = golden["steps"].get<std::int64_t>();
  EXPECT_GE(golden["cases"].size(), 28u);
  for (const auto& [name, test] : golden["cases"].items()) {
    SCOPED_TRACE(name);
    const auto schedule = run_of(test, rate, steps).schedule;
    ASSERT_EQ(test["learning_rate"].size(), static_cast<std::size_t>(steps));
    for (std::int64_t step = 0; step < steps; ++step) {
      const auto want = test["learning_rate"][static_cast<std::size_t>(step)].get<double>();
      // 1e-18 absolute: where a cosine ends at 0, the two sums round differently.
      EXPECT_NEAR(learning_rate_at(schedule, rate, step, steps), want, 1e-12 * want + 1e-18) << "step " << step;
    }
  }
}

TEST(Schedule, CosineWarmupWithMinLrIsNanoGpts) {
  // lr(it) = 1e-3 (it + 1) / 101 for it < 100, then a cosine from 1e-3 at 100 to 1e-4 at 2000
  // (github.com/karpathy/nanoGPT, train.py: get_lr with warmup_iters 100, lr_decay_iters 2000).
  const auto schedule = named("cosine_warmup_with_min_lr", {{"min_lr", 1e-4}}, 101);
  for (std::int64_t it = 0; it <= 2000; ++it) {
    const double done = static_cast<double>(it - 100) / 1900;
    const double want = it < 100 ? 1e-3 * static_cast<double>(it + 1) / 101
                                 : 1e-4 + 0.5 * (1 + std::cos(std::numbers::pi * done)) * 9e-4;
    EXPECT_NEAR(learning_rate_at(schedule, 1e-3, it, 2001), want, 1e-12 * want) << it;
  }
}

TEST(Schedule, CosineWarmupCanStartAtAGivenPart) {
  // warmup_lr_rate w: w + (1 - w) step / (warmup - 1)
  const auto schedule = named("cosine_warmup_with_min_lr", {{"min_lr_rate", 0.1}, {"warmup_lr_rate", 0.2}}, 5);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 1.0, 0, 25), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 1.0, 2, 25), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 1.0, 4, 25), 1.0);
  EXPECT_NEAR(learning_rate_at(schedule, 1.0, 24, 25), 0.1, 1e-15);
}

TEST(Schedule, LinearFallsToZeroAfterItsWarmup) {
  const auto schedule = named("linear", {}, 4);
  EXPECT_EQ(learning_rate_at(schedule, 8.0, 0, 12), 0.0);
  EXPECT_EQ(learning_rate_at(schedule, 8.0, 3, 12), 6.0);
  EXPECT_EQ(learning_rate_at(schedule, 8.0, 4, 12), 8.0);
  EXPECT_EQ(learning_rate_at(schedule, 8.0, 8, 12), 4.0);
  EXPECT_EQ(learning_rate_at(schedule, 8.0, 12, 12), 0.0);
  EXPECT_EQ(learning_rate_at(schedule, 8.0, 20, 12), 0.0);
}

TEST(Schedule, PolynomialHoldsItsEnd) {
  const auto schedule = named("polynomial", {{"power", 2.0}, {"lr_end", 0.1}});
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 1.1, 5, 10), 0.25 + 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 1.1, 10, 10), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(schedule, 1.1, 99, 10), 0.1);
}

TEST(Schedule, WarmupRatioIsRoundedUpAndStepsComeFirst) {
  ScheduleConfig schedule;
  schedule.warmup_ratio = 0.12;
  EXPECT_EQ(warmup_steps(schedule, 40), 5);  // 4.8
  EXPECT_EQ(warmup_steps(schedule, 0), 0);
  schedule.warmup_steps = 3;
  EXPECT_EQ(warmup_steps(schedule, 40), 3);
}

TEST(Schedule, DeepSpeedsAutomaticTotalsAreTheRuns) {
  auto automatic = named("WarmupDecayLR", {{"warmup_max_lr", 1.0}});
  automatic.deepspeed = automatic.has_warmup_of_run = true;
  automatic.warmup_ratio = 0.1;
  auto spelled = named("WarmupDecayLR", {{"warmup_max_lr", 1.0}, {"total_num_steps", 50}, {"warmup_num_steps", 5}});
  spelled.deepspeed = true;
  for (std::int64_t step = 0; step < 60; ++step) {
    EXPECT_EQ(learning_rate_at(automatic, 1.0, step, 50), learning_rate_at(spelled, 1.0, step, 50));
  }
  EXPECT_DOUBLE_EQ(learning_rate_at(spelled, 1.0, 5, 50), 1.0);
  EXPECT_EQ(learning_rate_at(spelled, 1.0, 55, 50), 0.0);
}

TEST(Schedule, EverySoundScheduleIsFiniteAtItsEdges) {
  for (const auto& type : schedule_types()) {
    if (!type.refusal.empty()) continue;
    SCOPED_TRACE(type.name);
    auto schedule = named(std::string(type.name));
    schedule.deepspeed = type.is_deepspeed;
    for (const auto& argument : type.arguments) {
      if (argument.is_required) schedule.numbers[std::string(argument.name)] = 0.0;
    }
    if (type.name.find("min_lr") != std::string_view::npos) schedule.numbers["min_lr"] = 0.0;
    for (const std::int64_t warmup : {0, 1, 10}) {
      schedule.warmup_steps = warmup;
      for (const std::int64_t total : {1, 10}) {
        for (std::int64_t step = 0; step <= total + 1; ++step) {
          EXPECT_TRUE(std::isfinite(learning_rate_at(schedule, 1e-3, step, total)))
              << "warmup " << warmup << " step " << step << " of " << total;
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle
