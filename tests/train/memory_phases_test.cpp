// Right is what the bill of the same plan says, which other code counts, and bytes by the number of parameters.
#include "train/memory_phases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "small_model.h"
#include "train/compile.h"

namespace heddle {
namespace {

constexpr std::size_t kBlocks = 3;

RunConfig small_run() {
  RunConfig run;
  run.precision = Precision::bf16;
  run.gradient_accumulation_steps = 2;
  run.max_length = 512;
  run.threads = 1;
  return run;
}

CompiledRun compile(const RunConfig& run) {
  return compile_training(small_model(kBlocks), run, WeightRules(), {512, 1}, StreamCapacity{256, 1});
}

std::uint64_t at(const PhaseBytes& phase, BufferClass buffer_class) {
  return phase.bytes[static_cast<std::size_t>(buffer_class)];
}

const PhaseBytes& phase(const TierPhases& tier, std::string_view name) {
  return *std::ranges::find(tier.phases, name, &PhaseBytes::name);
}

/// The peak's parts are the bill's, class by class, and no phase holds more.
void expect_the_bill(const CompiledRun& compiled) {
  for (const TierPhases& tier : memory_phases(compiled)) {
    const Bill bill = compiled.plan.bills()[static_cast<std::size_t>(tier.tier)];
    std::array<std::uint64_t, kBufferClasses> alive{};
    std::uint64_t sum = 0, unused = 0, most = 0;
    for (const AliveGroup& group : tier.peak.alive) {
      alive[static_cast<std::size_t>(group.buffer_class)] += group.bytes;
      sum += group.bytes;
      if (group.source == "unused between buffers") unused = group.bytes;
    }
    EXPECT_EQ(alive, bill.at_peak) << tier_name(tier.tier);
    EXPECT_EQ(sum, bill.peak) << tier_name(tier.tier);
    for (const PhaseBytes& part : tier.phases) most = std::max(most, part.total());
    EXPECT_EQ(most + unused, bill.peak) << tier_name(tier.tier);
  }
}

TEST(MemoryPhases, WhatIsAliveAddsUpToTheBill) {
  expect_the_bill(compile(small_run()));
  RunConfig run = small_run();
  run.gradient_accumulation_steps = 1;
  run.recompute = Recompute::full;
  expect_the_bill(compile(run));
  run.offload_optimizer = run.offload_param = OffloadDevice::nvme;
  run.offload_activations = OffloadDevice::cpu;
  run.nvme_path = "/";
  expect_the_bill(compile(run));
  run = small_run();
  run.ranks = 4;
  run.zero_stage = 3;
  run.tiled_mlp = true;
  expect_the_bill(compile(run));
}

TEST(MemoryPhases, LoadingHoldsTheWeightsAndTheirMasters) {
  const CompiledRun compiled = compile(small_run());
  const auto parameters = static_cast<std::uint64_t>(compiled.parameters.count());
  const TierPhases device = memory_phases(compiled).front();
  EXPECT_EQ(phase(device, "load").total(), parameters * (2 + 4));
  EXPECT_EQ(at(phase(device, "init"), BufferClass::optimizer_states), parameters * (4 + 4));
  EXPECT_EQ(at(phase(device, "save"), BufferClass::activations), 0U);
  EXPECT_EQ(device.peak.phase, "backward");
  EXPECT_LT(phase(device, "evaluation").total(), phase(device, "forward").total());
}

TEST(MemoryPhases, WhatIsAliveNamesWhatMadeIt) {
  const TierPhases device = memory_phases(compile(small_run())).front();
  const auto up =
      std::ranges::find(device.peak.alive, "linear of model.layers.*.mlp.up_proj.weight", &AliveGroup::source);
  ASSERT_NE(up, device.peak.alive.end());
  EXPECT_EQ(up->buffer_class, BufferClass::activations);
  EXPECT_EQ(up->count, kBlocks);
  EXPECT_EQ(up->bytes, kBlocks * 512U * 80 * 2);
  EXPECT_TRUE(std::ranges::is_sorted(device.peak.alive, std::ranges::greater{}, &AliveGroup::bytes));
}

TEST(MemoryPhases, TheDocumentHasEveryTierPhaseAndGroup) {
  RunConfig run = small_run();
  run.offload_optimizer = run.offload_activations = OffloadDevice::nvme;
  run.nvme_path = "/";
  const auto tiers = memory_phases(compile(run));
  Json document = {{"num_parameters", 1}};
  add_phases(document, tiers);
  ASSERT_EQ(tiers.size(), 3U);
  for (const TierPhases& tier : tiers) {
    const Json &phases = document["phases"][std::string(tier_name(tier.tier))],
               &peak = document["alive_at_peak"][std::string(tier_name(tier.tier))];
    EXPECT_EQ(phases.size(), tier.phases.size());
    for (const PhaseBytes& part : tier.phases) EXPECT_EQ(phases[part.name]["bytes"], part.total());
    ASSERT_EQ(peak["alive"].size(), tier.peak.alive.size());
    EXPECT_EQ(peak["alive"][0]["bytes"], tier.peak.alive[0].bytes);
    EXPECT_EQ(peak["instruction"], tier.peak.instruction);
    EXPECT_NE(phases_text(tiers).find(tier.peak.alive[0].source), std::string::npos);
  }
}

}  // namespace
}  // namespace heddle
