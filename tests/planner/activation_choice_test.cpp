// What is right is found by compiling every assignment of modes to blocks.
#include "planner/activation_choice.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "../train/small_model.h"
#include "planner/step_cost.h"
#include "train/run_setup.h"

namespace heddle {
namespace {

constexpr std::size_t kBlocks = 4;

class ActivationChoice : public testing::Test {
 protected:
  ActivationChoice() {
    run_.recompute = Recompute::automatic;
    run_.max_length = 512;
    run_.threads = 1;
  }

  CompiledRun compile(const RunConfig& run) const {
    ++compiled_;
    return compile_training(model_, run, WeightRules(), {512, 1}, std::nullopt);
  }

  std::vector<BlockActivations> choose(const MemoryLimits& limits) const {
    return choose_activations(
        run_, [&](const RunConfig& run) { return compile(run); }, limits, device_);
  }

  struct Assignment {
    std::vector<BlockActivations> blocks;
    std::uint64_t device = 0, host = 0;
    double seconds = 0;
  };

  Assignment assignment(std::vector<BlockActivations> blocks) const {
    RunConfig run = run_;
    run.block_activations = blocks;
    const CompiledRun compiled = compile(run);
    return {std::move(blocks), compiled.plan.device.peak, compiled.plan.host.peak,
            estimate_step(compiled, 1, device_).seconds};
  }

  std::vector<Assignment> all_assignments(const std::vector<BlockActivations>& modes) const {
    std::vector<Assignment> all;
    std::vector<std::size_t> digits(kBlocks, 0);
    for (bool more = true; more;) {
      std::vector<BlockActivations> blocks;
      for (const std::size_t digit : digits) blocks.push_back(modes[digit]);
      all.push_back(assignment(std::move(blocks)));
      more = false;
      for (std::size_t i = 0; i < kBlocks && !more; ++i) {
        more = ++digits[i] < modes.size();
        if (!more) digits[i] = 0;
      }
    }
    return all;
  }

  /// For budgets from the least to the greatest need: it fits, and takes at most a block's greatest difference longer
  /// than the best of all.
  void expect_near_best(const std::vector<Assignment>& all, std::uint64_t total) const {
    const auto [least, most] = std::ranges::minmax_element(all, {}, &Assignment::device);
    const auto [fast, slow] = std::ranges::minmax_element(all, {}, &Assignment::seconds);
    const double of_a_block = (slow->seconds - fast->seconds) / kBlocks;
    int exact = 0;
    constexpr int kBudgets = 9;
    for (int i = 0; i < kBudgets; ++i) {
      const std::uint64_t budget =
          least->device + (most->device - least->device) * static_cast<std::uint64_t>(i) / (kBudgets - 1);
      const MemoryLimits limits = {.device = budget, .total = total};
      const Assignment* best = nullptr;
      for (const Assignment& one : all) {
        if (limits.excess(one.device, one.host) <= 0 && (best == nullptr || one.seconds < best->seconds)) best = &one;
      }
      if (best == nullptr) continue;
      const Assignment chosen = assignment(choose(limits));
      EXPECT_LE(limits.excess(chosen.device, chosen.host), 0) << activations_text(chosen.blocks);
      EXPECT_LE(chosen.seconds, best->seconds + of_a_block)
          << activations_text(chosen.blocks) << "; best: " << activations_text(best->blocks);
      exact += chosen.seconds <= best->seconds * (1 + 1e-12) ? 1 : 0;
    }
    EXPECT_GE(exact, kBudgets / 2);
  }

  const ModelConfig model_ = small_model(kBlocks);
  const Device device_ = nominal_cpu();
  RunConfig run_;
  mutable int compiled_ = 0;
};

TEST_F(ActivationChoice, IsNearTheBestOfAllAssignments) {
  using enum Recompute;
  expect_near_best(all_assignments({{none, false}, {selective, false}, {full, false}}), kUnlimitedMemory);
}

TEST_F(ActivationChoice, IsNearTheBestWithOffloadToo) {
  run_.offload_activations = OffloadDevice::cpu;
  using enum Recompute;
  const auto all = all_assignments({{none, false}, {none, true}, {full, false}});
  expect_near_best(all, kUnlimitedMemory);
}

TEST_F(ActivationChoice, KeepsAllWhereAllFits) {
  const std::vector<BlockActivations> none(kBlocks, {Recompute::none, false});
  const std::uint64_t need = assignment(none).device;
  EXPECT_EQ(choose({.device = need, .total = need}), none);
  EXPECT_NE(choose({.device = need - 1, .total = need}), none);
}

TEST_F(ActivationChoice, FirstBlocksAreRebuiltFirst) {
  const std::uint64_t all = assignment(std::vector<BlockActivations>(kBlocks, {Recompute::none, false})).device;
  const auto chosen = choose({.device = all - 4096, .total = kUnlimitedMemory});
  EXPECT_NE(chosen.front().recompute, Recompute::none);
  EXPECT_EQ(chosen.back().recompute, Recompute::none);
}

TEST_F(ActivationChoice, IsWhatLacksTheLeastWhereNothingFits) {
  const std::uint64_t chosen = assignment(choose({.device = 1000, .total = 1000})).device;
  using enum Recompute;
  for (const Assignment& one : all_assignments({{none, false}, {full, false}}))
    EXPECT_LE(chosen, one.device) << activations_text(one.blocks);
}

TEST_F(ActivationChoice, MovesNothingToAHostWithoutRoom) {
  run_.offload_activations = OffloadDevice::cpu;
  const Assignment full = assignment(std::vector<BlockActivations>(kBlocks, {Recompute::full, false}));
  const Assignment chosen = assignment(choose({.device = full.device, .total = full.device}));
  EXPECT_LE(chosen.device + chosen.host, full.device);
}

TEST_F(ActivationChoice, ComparesFewPlans) {
  const std::uint64_t all = assignment(std::vector<BlockActivations>(kBlocks, {Recompute::none, false})).device;
  compiled_ = 0;
  choose({.device = all - 4096, .total = kUnlimitedMemory});
  EXPECT_LE(compiled_, 1 + 3 + 3 * 2 + 3);  // the blocks' number, modes, pairs x log2(4), one block again
}

}  // namespace
}  // namespace heddle
