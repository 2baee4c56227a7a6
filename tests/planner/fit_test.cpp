// The right values are those of the formula that stands for the compiler, and of the data sheets' units.
#include "planner/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

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
  // In the order of Recompute; `automatic` as if it were decided to mix.
  constexpr std::array<std::int64_t, 4> kRowBytes = {100, 80, 10, 12};
  std::int64_t row = kRowBytes[static_cast<std::size_t>(run.recompute)];
  if (run.tiled_mlp) row -= 1;
  compiled.plan.device.peak =
      static_cast<std::uint64_t>((is_offloaded ? 200 : 1000) + row * run.per_device_train_batch_size);
  compiled.plan.host.peak = run.offload_optimizer == OffloadDevice::cpu ? 800 : 0;
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

TEST(Fit, ABatchThatCannotBeCompiledDoesNotFit) {
  const auto compile = [](const RunConfig& run) {
    if (run.per_device_train_batch_size > 37) fail("more tokens than a micro-batch may have");
    return compile_formula(run);
  };
  const MemoryLimits limits = {.device = 1 << 30, .total = kUnlimitedMemory};
  EXPECT_EQ(find_fit(small_run(), compile, {}, limits, 1000).largest_batch, 37);
}

TEST(Fit, SearchesNoFurtherThanThereAreRows) {
  const Fit fit = fit_into(1 << 30, {}, 50);
  EXPECT_EQ(fit.largest_batch, 50);
  EXPECT_TRUE(fit.is_largest_searched);
  EXPECT_FALSE(fit_into(1000 + 37 * 100, {}, 50).is_largest_searched);
}

TEST(Fit, LeavesOutWhatContainsASmallerCombinationThatFits) {
  // One setting: full 1040, auto 1048, offload 600, half the rows 1200, selective 1320, tiles 1396. Two: none is left
  // without one of these.
  const Settings full = {{"recompute", "full"}}, offload = {{"offload_optimizer", "cpu"}},
                 automatic = {{"recompute", "auto"}};
  EXPECT_EQ(settings_of(fit_into(1100)), (std::vector<Settings>{offload, automatic, full}));
  // Two: selective and half the rows 1160.
  const Settings both = {
      {"recompute", "selective"}, {"per_device_train_batch_size", "2"}, {"gradient_accumulation_steps", "2"}};
  EXPECT_EQ(settings_of(fit_into(1160)), (std::vector<Settings>{offload, automatic, full, both}));
}

TEST(Fit, CombinesThreeWhereTwoAreNotEnough) {
  // full, offload and half the rows: 200 + 10 x 2; auto in place of full: 200 + 12 x 2.
  const Fit fit = fit_into(230);
  ASSERT_EQ(fit.alternatives.size(), 2U);
  EXPECT_EQ(fit.alternatives[0].peak, 220U);
  EXPECT_EQ(fit.alternatives[1].peak, 224U);
  for (const Alternative& alternative : fit.alternatives) EXPECT_EQ(alternative.settings.size(), 4U);
}

TEST(Fit, NamesTilesOfTheMlp) {
  const auto settings = settings_of(fit_into(1396));
  EXPECT_EQ(std::ranges::count(settings, Settings{{"tiled_mlp", "true"}}), 1);
}

TEST(Fit, LeavesOutAnAutoThatIsTheSameAsAnotherSetting) {
  const auto compile = [](RunConfig run) {  // auto decides to rebuild all
    if (run.recompute == Recompute::automatic) run.recompute = Recompute::full;
    return compile_formula(run);
  };
  const Fit fit = find_fit(small_run(), compile, {}, {.device = 1100, .total = kUnlimitedMemory}, 1000);
  EXPECT_EQ(std::ranges::count(settings_of(fit), Settings{{"recompute", "auto"}}), 0);
}

TEST(Fit, NamesTheLeastWhereNothingFits) {
  const Fit fit = fit_into(100);
  EXPECT_TRUE(fit.alternatives.empty());
  EXPECT_EQ(fit.smallest.peak, 220U);
}

TEST(Fit, HostMemoryIsNoGainWhereTheDeviceIsTheHost) {
  Device cpu;
  cpu.is_host = true;
  const auto offloads = [&](std::uint64_t memory) {
    cpu.memory = memory;
    std::set<std::string> places;
    for (const Settings& settings : settings_of(fit_into(999, cpu))) {
      for (const auto& [key, value] : settings) {
        if (key.starts_with("offload")) places.insert(key + " " + value);
      }
    }
    return places;
  };
  // Offloaded, the run needs 600 and 800 elsewhere.
  EXPECT_EQ(offloads(1400), (std::set<std::string>{"offload_optimizer cpu"}));
  EXPECT_EQ(offloads(1399), (std::set<std::string>{"offload_optimizer nvme", "offload_gradients nvme"}));
}

TEST(Fit, NamesTheLimitThatBinds) {
  Fit fit;
  fit.run.peak = 600, fit.run.host_peak = 800;
  fit.run.cost.seconds = 1;
  fit.limits = {.device = 500, .total = 1350};  // 100 too many on the device, 50 in all
  EXPECT_EQ(fit.is_bound_by_total(), false);
  fit.limits = {.device = 500, .total = 1200};
  EXPECT_EQ(fit.is_bound_by_total(), true);
  fit.is_named = false;
  EXPECT_NE(fit_text(fit).find(
                "the budget: does not fit, 200 bytes too many of 1.2 KiB (1,200) for device and host together"),
            std::string::npos)
      << fit_text(fit);
  fit.limits = {.device = 500, .total = kUnlimitedMemory};
  EXPECT_EQ(fit.is_bound_by_total(), false);
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

// 4000 bytes over PCIe 5 take 63.5 ns; 3 x 40,000 bytes of memory at 3.35 TB/s 35.8 ns.
TEST(StepCost, ATransferCostsWhatTheComputationWaitsForIt) {
  const Device device = parse_hardware("H100").device;
  const double transfer = 4000 / 63e9, add = 3 * 40000 / 3.35e12;
  const auto seconds = [&](const std::vector<std::string_view>& order) {
    CompiledRun compiled = compile_formula(small_run());
    StepProgram& program = compiled.programs[0];
    const ValueType moved{.dtype = DType::f32, .shape = {1000}}, summed{.dtype = DType::f32, .shape = {10000}};
    program.add({.label = "there", .type = moved, .tier = Tier::host});
    program.add({.label = "here", .type = moved});
    for (const char* label : {"a", "b", "sum"}) program.add({.label = label, .type = summed});
    for (const std::string_view name : order) {
      Instruction instruction{.operation = &find_operation(name)};
      if (name == "add") instruction.inputs = {2, 3}, instruction.outputs = {4};
      if (name == "wait") instruction.inputs = {1};
      if (name == "transfer") instruction.inputs = {0}, instruction.outputs = {1}, instruction.queue = Queue::transfer;
      program.instructions.push_back(std::move(instruction));
    }
    return estimate_step(compiled, 1, device).seconds;
  };
  EXPECT_DOUBLE_EQ(seconds({"transfer", "wait", "add"}), transfer + add);
  EXPECT_DOUBLE_EQ(seconds({"transfer", "add", "wait"}), transfer);
  EXPECT_DOUBLE_EQ(seconds({"transfer", "add", "add", "wait", "add"}), 3 * add);
  EXPECT_DOUBLE_EQ(seconds({"add", "transfer", "add", "wait"}), add + transfer);
  EXPECT_DOUBLE_EQ(seconds({"transfer", "transfer", "add", "wait"}), 2 * transfer);  // one queue, in order
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
  const auto compile = [&](const RunConfig& variant) { return compile_run(variant, model, nullptr, data_of_none); };
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
