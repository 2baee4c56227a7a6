// Gradients in the nvme tier, on toy programs. That they give the bits of those in memory is proved by running
// (tests/endtoend).
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "toy.h"

namespace heddle {
namespace {

struct Compiled {
  Parameters parameters;
  StepProgram step, norm, update;
  MemoryPlan plan;
};

Compiled compile(const Sharding& sharding, OptimizerKind optimizer = OptimizerKind::adamw,
                 const Offload& moved = {.optimizer = Tier::nvme, .gradients = Tier::nvme}) {
  Compiled c;
  c.step = toy::forward(c.parameters);
  differentiate(c.step);
  accumulate(c.step, sharding.accumulation == 1);
  shard(c.step, sharding, moved);
  swap_gradients(c.step, c.parameters, sharding, moved);
  c.parameters.optimizer.kind = optimizer;
  c.norm = make_norm_program(c.parameters, sharding, moved);
  c.update = make_optimizer_program(c.parameters, DType::f32, sharding, moved);
  c.plan = allocate({&c.step, &c.norm, &c.update}, 4096);
  return c;
}

bool is_gradient_far(const StepProgram& program, int buffer) {
  const Buffer& root = program.at(program.root(buffer));
  return root.tier == Tier::nvme && root.buffer_class == BufferClass::gradients;
}

class SwapGradients : public testing::TestWithParam<Sharding> {};

TEST_P(SwapGradients, NoneStaysInMemory) {
  const Compiled c = compile(GetParam());
  for (const auto* bill : {&c.plan.device, &c.plan.host})
    EXPECT_EQ(bill->greatest[static_cast<std::size_t>(BufferClass::gradients)], 0u);
  for (const auto* program : {&c.step, &c.norm, &c.update}) {
    for (const auto& parameter : c.parameters.list) {
      const Buffer& gradient = program->at(program->find_persistent(gradient_label(parameter.name)));
      EXPECT_EQ(gradient.tier, Tier::nvme);
      EXPECT_EQ(gradient.bytes() % kPageBytes, 0);
    }
  }
}

TEST_P(SwapGradients, EachIsSummedThenStoredOnceAMicroBatch) {
  const Compiled c = compile(GetParam());
  toy::expect_sound(c.step);
  std::map<std::string, int> stored, fetched;
  std::set<int> summed;
  for (const auto& instruction : c.step.instructions) {
    if (instruction.operation->name == "sum_of_squares") summed.insert(c.step.root(instruction.inputs[0]));
    if (instruction.operation->name != "transfer") continue;
    for (std::size_t i = 0; i < instruction.inputs.size(); ++i) {
      const int from = instruction.inputs[i], to = instruction.outputs[i];
      if (is_gradient_far(c.step, from)) ++fetched[c.step.at(from).label];
      if (!is_gradient_far(c.step, to)) continue;
      ++stored[c.step.at(to).label];
      EXPECT_TRUE(summed.contains(c.step.root(from))) << c.step.at(to).label;
    }
  }
  EXPECT_EQ(stored.size(), c.parameters.list.size());
  for (const auto& [label, times] : stored) EXPECT_EQ(times, 1) << label;
  // Only what further micro-batches add to is needed again.
  EXPECT_EQ(fetched.size(), GetParam().accumulation > 1 ? c.parameters.list.size() : 0u);
  EXPECT_TRUE(toy::all(c.norm, "sum_of_squares").empty());
}

TEST_P(SwapGradients, TheUpdateReadsEachOnceAndWritesNoneBack) {
  for (const auto kind : {OptimizerKind::adamw, OptimizerKind::muon, OptimizerKind::adafactor}) {
    const Compiled c = compile(GetParam(), kind);
    toy::expect_sound(c.update);
    std::map<std::string, int> read;
    for (const auto* transfer : toy::all(c.update, "transfer")) {
      for (const int from : transfer->inputs) {
        if (is_gradient_far(c.update, from)) ++read[c.update.at(from).label];
      }
      for (const int to : transfer->outputs) EXPECT_FALSE(is_gradient_far(c.update, to));
    }
    EXPECT_EQ(read.size(), c.parameters.list.size());
    for (const auto& [label, times] : read) EXPECT_EQ(times, 1) << label;
  }
}

TEST_P(SwapGradients, ThoseThatStayAreSummedForTheNormAndUpdatedWhileOthersCome) {
  Offload moved = {.gradients = Tier::nvme};
  for (const char* name : {"block.0.up", "block.1.up"}) moved.resident_gradients.insert(gradient_label(name));
  const Compiled c = compile(GetParam(), OptimizerKind::adamw, moved);
  toy::expect_sound(c.step);
  std::set<std::string> stored;
  for (const auto* transfer : toy::all(c.step, "transfer")) {
    for (const int to : transfer->outputs) {
      if (is_gradient_far(c.step, to)) stored.insert(c.step.at(to).label);
    }
  }
  EXPECT_EQ(stored.size(), c.parameters.list.size() - moved.resident_gradients.size());
  for (const std::string& label : moved.resident_gradients) {
    EXPECT_FALSE(stored.contains(label));
    EXPECT_EQ(c.update.at(c.update.find_persistent(label)).tier, Tier::device);
  }
  EXPECT_EQ(toy::all(c.norm, "sum_of_squares").size(), moved.resident_gradients.size());
  toy::expect_sound(c.update);
  std::string order;
  for (const auto& instruction : c.update.instructions) {
    const std::string_view name = instruction.operation->name;
    if (name == "transfer") order += 'T';
    if (name == "wait" && c.update.at(c.update.root(instruction.inputs[0])).tier == Tier::host) order += 'w';
    if (name == "adamw") order += 'A';
  }
  if (GetParam().ranks == 1) {  // embed, then norm, up and down of each block
    EXPECT_EQ(order, "TTwATwAATwATwAAwA");
  }
}

TEST(GradientGroups, AreInTheOrderOfTheBackwardAndKnowTheTiedHead) {
  Parameters parameters;
  StepProgram step = toy::forward(parameters);
  differentiate(step);
  accumulate(step);
  std::vector<std::string> labels;
  for (const GradientGroup& group : gradient_groups(step)) {
    ASSERT_EQ(group.labels.size(), 1u);
    labels.push_back(group.labels[0]);
    EXPECT_EQ(group.is_of_several_units, group.labels[0] == gradient_label("embed"));
  }
  std::vector<std::string> expected;
  for (const char* name :
       {"embed", "block.1.down", "block.1.up", "block.1.norm", "block.0.down", "block.0.up", "block.0.norm"})
    expected.push_back(gradient_label(name));
  EXPECT_EQ(labels, expected);
}

INSTANTIATE_TEST_SUITE_P(Layouts, SwapGradients,
                         testing::Values(Sharding{}, Sharding{.accumulation = 3},
                                         Sharding{.stage = 2, .ranks = 2, .rank = 1},
                                         Sharding{.stage = 3, .ranks = 3, .rank = 2, .accumulation = 2}));

}  // namespace
}  // namespace heddle
