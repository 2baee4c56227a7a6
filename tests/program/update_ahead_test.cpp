// That an update within the next step gives the bits of one at the end of its own is proved by running
// (tests/endtoend).
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "toy.h"

namespace heddle {
namespace {

struct Compiled {
  Parameters parameters;
  StepProgram step, norm, update, streamed, merged;
};

/// The second block's `up` stays in memory, gradient and states.
Compiled compile(const Offload& moved) {
  Compiled c;
  c.step = toy::forward(c.parameters);
  differentiate(c.step);
  accumulate(c.step, true);
  shard(c.step, {}, moved);
  offload(c.step, moved);
  if (moved.gradients == Tier::nvme) swap_gradients(c.step, c.parameters, {}, moved);
  c.norm = make_norm_program(c.parameters, {}, moved);
  c.update = make_optimizer_program(c.parameters, DType::f32, {}, moved, UpdatedWeights::in_memory);
  c.streamed = make_optimizer_program(c.parameters, DType::f32, {}, moved, UpdatedWeights::streamed);
  c.merged = c.step;
  update_ahead(c.merged, c.streamed);
  return c;
}

std::set<std::string> updated(const StepProgram& program) {
  std::set<std::string> labels;
  for (const auto* instruction : toy::all(program, "adamw"))
    labels.insert(program.at(program.root(instruction->inputs[0])).label);
  return labels;
}

class UpdateAhead : public testing::TestWithParam<Offload> {};

TEST_P(UpdateAhead, EachWeightIsUpdatedOnceByOneProgram) {
  const Compiled c = compile(GetParam());
  const auto near = updated(c.update), far = updated(c.streamed);
  EXPECT_EQ(near.size() + far.size(), c.parameters.list.size());
  EXPECT_EQ(near.size(), GetParam().parameters == Tier::nvme ? 0u : 1u);
  EXPECT_EQ(updated(c.merged), far);
  EXPECT_EQ(c.merged.instructions.size(), c.step.instructions.size() + c.streamed.instructions.size());
}

TEST_P(UpdateAhead, BeforeAnythingUsesTheWeight) {
  const Compiled c = compile(GetParam());
  toy::expect_sound(c.merged);
  for (const auto& parameter : c.parameters.list) {
    int used = -1, written = -1;
    for (int i = 0; i < static_cast<int>(c.merged.instructions.size()); ++i) {
      const auto& instruction = c.merged.instructions[static_cast<std::size_t>(i)];
      const auto names = [&](const std::vector<int>& operands) {
        return std::ranges::any_of(operands, [&](int operand) {
          return operand >= 0 && c.merged.at(c.merged.root(operand)).label == parameter.name;
        });
      };
      if (instruction.phase == Phase::update) {
        if (names(instruction.outputs)) written = i;
      } else if (used < 0 && names(instruction.inputs)) {
        used = i;
      }
    }
    EXPECT_GE(used, 0) << parameter.name;
    EXPECT_LT(written, used) << parameter.name;
  }
}

TEST_P(UpdateAhead, TheUpdateIsInTheForwardAndSpreadOverIt) {
  const Compiled c = compile(GetParam());
  std::vector<std::size_t> places;
  std::size_t backward = 0;
  for (std::size_t i = 0; i < c.merged.instructions.size(); ++i) {
    const auto& instruction = c.merged.instructions[i];
    if (instruction.operation->name == "adamw") places.push_back(i);
    if (backward == 0 && instruction.phase == Phase::backward) backward = i;
  }
  ASSERT_FALSE(places.empty());
  EXPECT_LT(places.back(), backward);
  std::ptrdiff_t between = 0;  // what is computed between the first and the last
  for (std::size_t i = places.front(); i < places.back(); ++i)
    between += c.merged.instructions[i].phase == Phase::forward ? 1 : 0;
  EXPECT_GE(between, 4);
}

TEST_P(UpdateAhead, NeedsNoMoreMemoryAtAnyTime) {
  Compiled with = compile(GetParam()), without = compile(GetParam());
  const MemoryPlan a = allocate({&with.step, &with.norm, &with.update, &with.streamed, &with.merged}, 4096);
  const MemoryPlan b = allocate({&without.step, &without.norm, &without.update, &without.streamed}, 4096);
  constexpr auto kWorkspace = static_cast<std::size_t>(BufferClass::workspace);
  for (std::size_t tier = 0; tier < 3; ++tier) {
    for (std::size_t c = 0; c < kBufferClasses; ++c) {
      if (c == kWorkspace) continue;
      EXPECT_EQ(a.bills()[tier].greatest[c], b.bills()[tier].greatest[c]) << tier << " " << c;
    }
  }
  EXPECT_EQ(a.host.greatest[kWorkspace], b.host.greatest[kWorkspace]);
  EXPECT_EQ(a.host.peak, b.host.peak);
  EXPECT_EQ(a.device.peak, b.device.peak);
}

INSTANTIATE_TEST_SUITE_P(
    Places, UpdateAhead,
    testing::Values(
        Offload{.gradients = Tier::nvme, .resident_gradients = {gradient_label("block.1.up")}},
        Offload{.optimizer = Tier::nvme, .gradients = Tier::host, .resident_states = {gradient_label("block.1.up")}},
        Offload{
            .parameters = Tier::nvme, .optimizer = Tier::nvme, .gradients = Tier::nvme, .activations = Tier::nvme}));

}  // namespace
}  // namespace heddle
