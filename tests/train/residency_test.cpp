#include "train/residency.h"

#include <gtest/gtest.h>

#include "small_model.h"

namespace heddle {
namespace {

constexpr std::size_t kBlocks = 4;

class ResidencyTest : public testing::Test {
 protected:
  ResidencyTest() {
    run_.max_length = 512;
    run_.threads = 1;
  }

  CompiledRun compile(const RunConfig& run) const {
    ++compiled_;
    ModelConfig model = small_model(kBlocks);
    model.vocab_size = vocabulary_;
    return compile_training(model, run, WeightRules(), {512, 1}, std::nullopt);
  }

  /// The run within so many bytes of device and host; with all of it where there is no budget.
  CompiledRun chosen(std::uint64_t memory) {
    RunConfig run = run_;
    choose_residency(
        run, [&](const RunConfig& variant) { return compile(variant); }, memory_limits(run, memory));
    decided_ = run;
    return compile(run);
  }

  static std::uint64_t in_memory(const CompiledRun& compiled) {
    return compiled.plan.device.peak + compiled.plan.host.peak;
  }

  RunConfig run_, decided_;
  std::int64_t vocabulary_ = 64;
  mutable int compiled_ = 0;
};

TEST_F(ResidencyTest, WithoutABudgetGradientsTakeWhatActivationsLeave) {
  run_.offload_gradients = OffloadDevice::nvme;
  const CompiledRun moved = compile(run_), kept = chosen(kUnlimitedMemory);
  EXPECT_LE(kept.plan.device.peak, moved.plan.device.peak);
  EXPECT_LE(in_memory(kept), in_memory(moved));
  EXPECT_LT(kept.plan.nvme.peak, moved.plan.nvme.peak);
  EXPECT_GT(decided_.resident_gradients, 0u);
  ASSERT_EQ(decisions(kept).size(), 1u);
  EXPECT_TRUE(decisions(kept)[0].ends_with("gradients stay in memory")) << decisions(kept)[0];
  EXPECT_TRUE(decisions(moved).empty());
}

class ResidencyOfAll : public ResidencyTest, public testing::WithParamInterface<OffloadDevice> {};

TEST_P(ResidencyOfAll, OneMoreWouldBeTooMany) {
  run_.offload_gradients = run_.offload_activations = OffloadDevice::nvme;
  run_.offload_optimizer = GetParam();
  const CompiledRun moved = compile(run_);
  RunConfig all = run_;
  all.offload_gradients = all.offload_activations = all.offload_optimizer = OffloadDevice::none;
  const std::uint64_t least = in_memory(moved), most = in_memory(compile(all));
  ASSERT_LT(least, most);
  std::uint64_t before = moved.plan.nvme.peak + 1;
  for (int i = 0; i <= 8; ++i) {
    const std::uint64_t budget = least + (most - least) * static_cast<std::uint64_t>(i) / 8;
    run_.memory_budget = budget;
    const CompiledRun kept = chosen(kUnlimitedMemory);
    EXPECT_LE(in_memory(kept), budget);
    EXPECT_LE(kept.plan.nvme.peak, before) << i;
    before = kept.plan.nvme.peak;
    RunConfig more = decided_;
    if (++more.resident_gradients <= kept.residents.groups) {
      EXPECT_GT(in_memory(compile(more)), budget) << i;
    }
    more = decided_;
    if (GetParam() != OffloadDevice::none && ++more.resident_states <= kept.residents.groups) {
      EXPECT_GT(in_memory(compile(more)), budget) << i;
    }
    more = decided_;
    const auto last_moved = std::ranges::find_if(more.block_activations.rbegin(), more.block_activations.rend(),
                                                 [](const BlockActivations& block) { return block.is_offloaded; });
    if (last_moved != more.block_activations.rend()) {
      last_moved->is_offloaded = false;
      EXPECT_GT(in_memory(compile(more)), budget) << i;
    }
  }
  EXPECT_EQ(before, 0u);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ResidencyOfAll, testing::Values(OffloadDevice::none, OffloadDevice::nvme));

TEST_F(ResidencyTest, StatesComeBackToTheDeviceThatHasRoom) {
  run_.offload_optimizer = OffloadDevice::cpu;
  const CompiledRun moved = compile(run_);
  RunConfig all = run_;
  all.offload_optimizer = OffloadDevice::none;
  run_.memory_budget = std::uint64_t{1} << 30;  // says nothing of the device
  EXPECT_EQ(chosen(kUnlimitedMemory).plan.device.peak, moved.plan.device.peak);
  run_.memory_budget.reset();
  run_.device_memory = (moved.plan.device.peak + compile(all).plan.device.peak) / 2;
  const CompiledRun kept = chosen(kUnlimitedMemory);
  EXPECT_LE(kept.plan.device.peak, *run_.device_memory);
  EXPECT_GT(kept.plan.device.peak, moved.plan.device.peak);
  EXPECT_LT(kept.plan.host.peak, moved.plan.host.peak);
  EXPECT_GT(kept.residents.states, 0u);
}

TEST_F(ResidencyTest, TheDeviceAloneHasABudget) {
  run_.offload_activations = OffloadDevice::cpu;
  const CompiledRun moved = compile(run_);
  RunConfig all = run_;
  all.offload_activations = OffloadDevice::none;
  run_.device_memory = (moved.plan.device.peak + compile(all).plan.device.peak) / 2;
  const CompiledRun kept = chosen(kUnlimitedMemory);
  EXPECT_LE(kept.plan.device.peak, *run_.device_memory);
  EXPECT_LT(kept.plan.host.peak, moved.plan.host.peak);
  EXPECT_GT(kept.plan.host.peak, 0u);
  EXPECT_EQ(kept.activations_key, "offload_activations: cpu");
}

TEST_F(ResidencyTest, AnEighthOfTheMachinesMemoryIsLeftAlone) {
  run_.offload_activations = OffloadDevice::nvme;
  const std::uint64_t least = in_memory(compile(run_));
  RunConfig all = run_;
  all.offload_activations = OffloadDevice::none;
  const std::uint64_t most = in_memory(compile(all)), available = (least + most) / 2;
  run_.device_memory = most;
  const CompiledRun kept = chosen(available);
  EXPECT_LE(in_memory(kept), std::max(least, available - available / 8));
  EXPECT_EQ(in_memory(chosen(most * 8 / 7 + 1)), most);
}

TEST_F(ResidencyTest, KeysOfRecomputationHold) {
  run_.offload_activations = OffloadDevice::nvme;
  run_.recompute = Recompute::full;
  run_.recompute_every = 3;
  run_.memory_budget = std::uint64_t{1} << 30;
  chosen(kUnlimitedMemory);
  ASSERT_EQ(decided_.block_activations.size(), kBlocks);
  for (std::size_t block = 0; block < kBlocks; ++block) {
    EXPECT_EQ(decided_.block_activations[block].recompute, block % 3 == 0 ? Recompute::full : Recompute::none);
    EXPECT_FALSE(decided_.block_activations[block].is_offloaded);
  }
}

TEST_F(ResidencyTest, ARunThatDoesNotFitStaysAsItIs) {
  run_.offload_gradients = run_.offload_activations = OffloadDevice::nvme;
  run_.memory_budget = in_memory(compile(run_)) / 2;
  chosen(kUnlimitedMemory);
  EXPECT_EQ(decided_.resident_gradients, 0u);
  EXPECT_TRUE(decided_.block_activations.empty());
}

TEST_F(ResidencyTest, ATiedGradientThatTakesLessWhereItStaysMakesARunFit) {
  vocabulary_ = 16384;
  run_.offload_gradients = run_.offload_activations = OffloadDevice::nvme;
  const CompiledRun moved = compile(run_);
  RunConfig stays = run_;
  stays.resident_gradients = 1;
  const std::uint64_t least = in_memory(compile(stays));
  ASSERT_LT(least, in_memory(moved));
  run_.memory_budget = (least + in_memory(moved)) / 2;
  const CompiledRun kept = chosen(kUnlimitedMemory);
  EXPECT_GE(decided_.resident_gradients, 1u);
  EXPECT_LE(in_memory(kept), *run_.memory_budget);
}

TEST_F(ResidencyTest, NothingIsTriedWhereNothingMoves) {
  run_.memory_budget = std::uint64_t{1} << 30;
  chosen(kUnlimitedMemory);
  EXPECT_EQ(compiled_, 1);
}

}  // namespace
}  // namespace heddle
