// The right values are those of the formula that stands for the compiler, and of the data sheets' units.
#include "planner/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "ops/declarations.h"
#include "planner/step_cost.h"
#include "train/run_setup.h"

namespace heddle {
namespace {

constexpr std::int64_t kRows = 4;

/// Bytes by a formula in place of a compiler: 1000 of states, 100 a row of activations; no instructions.
CompiledRun compile_formula(const RunConfig& run) {
  if (run.offload_param != OffloadDevice::none) fail("not here");
  CompiledRun compiled;
  compiled.programs.resize(3);
  compiled.micro_batch = 0, compiled.norm = 1, compiled.update = 2;
  const bool is_offloaded = run.offload_optimizer != OffloadDevice::none;
  const std::int64_t row = run.recompute == Recompute::full ? 10 : run.recompute == Recompute::selective ? 80 : 100;
  compiled.plan.device.peak =
      static_cast<std::uint64_t>((is_offloaded ? 200 : 1000) + row * run.per_device_train_batch_size);
  compiled.plan.host.peak = is_offloaded ? 800 : 0;
  return compiled;
}

RunConfig small_run() {
  RunConfig run;
  run.precision = Precision::bf16;
  run.per_device_train_batch_size = kRows;
  return run;
}

Fit fit_into(std::uint64_t budget, const Device& device = {}, std::int64_t most_rows = 1000) {
  const MemoryLimits limits = {.device = budget, .total = device.is_host ? device.memory : kUnlimitedMemory};
  return find_fit(small_run(), compile_formula, device, limits, most_rows);
}

std::vector<Settings> settings_of(const Fit& fit) {
  std::vector<Settings> list;
  for (const auto& alternative : fit.alternatives) list.push_back(alternative.settings);
  std::ranges::sort(list);
  return list;
}

TEST(Fit, SaysByHowManyBytes) {
  EXPECT_TRUE(fit_into(1400).fits());
  EXPECT_EQ(fit_into(1400).excess(fit_into(1400).run), 0);
  EXPECT_FALSE(fit_into(1399).fits());
  EXPECT_EQ(fit_into(1399).excess(fit_into(1399).run), 1);
}

TEST(Fit, FindsTheLargestBatch) {
  EXPECT_EQ(fit_into(1000 + 37 * 100).largest_batch, 37);
  EXPECT_EQ(fit_into(1000 + 37 * 100 + 99).largest_batch, 37);
  EXPECT_EQ(fit_into(1000 + 64 * 100).largest_batch, 64);
  EXPECT_EQ(fit_into(1000 + 3 * 100).largest_batch, 3);  // less than the run's
  EXPECT_EQ(fit_into(1099).largest_batch, 0);
}

TEST(Fit, SearchesNoFurtherThanThereAreRows) {
  const Fit fit = fit_into(1 << 30, {}, 50);
  EXPECT_EQ(fit.largest_batch, 50);
  EXPECT_TRUE(fit.is_largest_searched);
  EXPECT_FALSE(fit_into(1000 + 37 * 100, {}, 50).is_largest_searched);
}

TEST(Fit, LeavesOutWhatContainsASmallerCombinationThatFits) {
  // One setting: full 1040, offload 600, half the rows 1200, selective 1320. Two: none is left without one of these.
  const Settings full = {{"recompute", "full"}}, offload = {{"offload_optimizer", "cpu"}};
  EXPECT_EQ(settings_of(fit_into(1100)), (std::vector<Settings>{offload, full}));
  // Two: selective and half the rows 1160.
  const Settings both = {
      {"recompute", "selective"}, {"per_device_train_batch_size", "2"}, {"gradient_accumulation_steps", "2"}};
  EXPECT_EQ(settings_of(fit_into(1160)), (std::vector<Settings>{offload, full, both}));
}

TEST(Fit, CombinesThreeWhereTwoAreNotEnough) {
  // full, offload and half the rows: 200 + 10 x 2.
  const Fit fit = fit_into(230);
  ASSERT_EQ(fit.alternatives.size(), 1U);
  EXPECT_EQ(fit.alternatives[0].peak, 220U);
  EXPECT_EQ(fit.alternatives[0].settings.size(), 4U);
}

TEST(Fit, NamesTheLeastWhereNothingFits) {
  const Fit fit = fit_into(100);
  EXPECT_TRUE(fit.alternatives.empty());
  EXPECT_EQ(fit.smallest.peak, 220U);
}

TEST(Fit, HostMemoryIsNoGainWhereTheDeviceIsTheHost) {
  Device cpu;
  cpu.is_host = true;
  cpu.memory = 999;  // offloaded, the run needs 600 and 800
  EXPECT_TRUE(fit_into(999, cpu).alternatives.empty());
  cpu.memory = 1400;
  EXPECT_FALSE(fit_into(999, cpu).alternatives.empty());
}

TEST(StepCost, ATransferTakesItsBytesOverTheLink) {
  CompiledRun compiled = compile_formula(small_run());
  StepProgram& program = compiled.programs[0];
  const ValueType type{.dtype = DType::f32, .shape = {1000}};
  program.add({.label = "there", .type = type, .tier = Tier::host});
  program.add({.label = "here", .type = type, .tier = Tier::device});
  for (const auto& operation : movement_operations()) {
    if (operation.name != "transfer") continue;
    program.instructions.push_back({.operation = &operation, .inputs = {0}, .outputs = {1}});
    const StepCost cost = estimate_step(compiled, 3, parse_hardware("H100").device);
    EXPECT_DOUBLE_EQ(cost.moved_bytes, 3 * 4000.0);
    EXPECT_DOUBLE_EQ(cost.seconds, 3 * 4000.0 / 63e9);  // PCIe 5, 16 lanes
    return;
  }
  FAIL() << "no transfer";
}

TEST(StepCost, AnEightBillionStepTakesSixFlopsAParameterAndToken) {
  const char* folder = std::getenv("HEDDLE_DATA");
  const std::filesystem::path data = folder != nullptr ? folder : HEDDLE_SOURCE_DIR "/../shared/data";
  const auto config = data / "hf_configs/repos/Meta-Llama-3-8B-Instruct.json";
  if (!std::filesystem::exists(config)) GTEST_SKIP() << config << " is absent";
  RunConfig run = small_run();
  run.config_name = config.string();
  run.max_length = 2048;
  run.per_device_train_batch_size = 1;
  const ModelSource model = open_run_model(run);
  const RunData data_of_none;
  const auto compile = [&](const RunConfig& variant) { return compile_run(variant, model, data_of_none); };
  const Device device = parse_hardware("A100-80GB").device;
  const StepCost cost = estimate_step(compile(run), 1, device);
  // 6 FLOPs a parameter (all but the embedding's table) and token (Kaplan et al. 2020, arXiv:2001.08361); causal
  // attention adds 2 T^2 H a layer forward and 2.5 times that backward. Norms and the update are below 2%.
  const double tokens = 2048, products = 6 * (8030261248.0 - 128256.0 * 4096) * tokens;
  const double attention = 3.5 * 32 * 2 * tokens * tokens * 4096;
  EXPECT_NEAR(cost.flops / (products + attention), 1, 0.02);
  EXPECT_GT(cost.seconds, cost.flops / device.half_flops);
  // Whole blocks computed again: 2 FLOPs a parameter and token, and attention, for all but each block's last product,
  // whose result no backward reads.
  run.recompute = Recompute::full;
  const double blocks = 8030261248.0 - 2 * 128256.0 * 4096 - 32 * 4096.0 * 14336;
  const double again = 2 * blocks * tokens + 32 * 2 * tokens * tokens * 4096;
  EXPECT_NEAR((estimate_step(compile(run), 1, device).flops - cost.flops) / again, 1, 0.02);
}

}  // namespace
}  // namespace heddle
