#include "program/passes/passes.h"

#include <gtest/gtest.h>

#include <map>

#include "toy.h"

namespace heddle {
namespace {

using toy::expect_sound;

StepProgram trained(Parameters& parameters, RecomputeMode mode = RecomputeMode::none, bool one_micro_batch = false) {
  StepProgram program = toy::forward(parameters);
  differentiate(program);
  recompute(program, mode);
  accumulate(program, one_micro_batch);
  return program;
}

TEST(Differentiate, EveryWeightGetsOneGradientOfItsShape) {
  Parameters parameters;
  const StepProgram program = trained(parameters);
  for (const auto& parameter : parameters.list) {
    const int gradient = program.find_persistent(gradient_label(parameter.name));
    ASSERT_GE(gradient, 0) << parameter.name;
    EXPECT_EQ(program.at(gradient).type.shape, parameter.shape);
    EXPECT_EQ(program.at(gradient).type.dtype, DType::f32);
  }
}

TEST(Differentiate, TheLossAndItsGradientAreOneInstruction) {
  Parameters parameters;
  const StepProgram program = trained(parameters);
  EXPECT_TRUE(toy::all(program, "linear_cross_entropy").empty());
  EXPECT_EQ(toy::all(program, "linear_cross_entropy_gradient").size(), 1u);
}

TEST(Differentiate, TheBackwardRunsInReverse) {
  Parameters parameters;
  const StepProgram program = trained(parameters);
  expect_sound(program);
  int unit = static_cast<int>(program.units.size());
  for (const auto& instruction : program.instructions) {
    if (instruction.phase != Phase::backward) continue;
    EXPECT_LE(instruction.unit, unit);
    unit = instruction.unit;
  }
}

TEST(Differentiate, FrozenWeightsCostNoGradient) {
  Parameters parameters;
  toy::forward(parameters);
  for (auto& parameter : parameters.list) parameter.is_trainable = parameter.name == "block.1.up";
  StepProgram program = toy::forward(parameters);
  differentiate(program);
  for (const auto& parameter : parameters.list) {
    EXPECT_EQ(program.find_persistent(gradient_label(parameter.name)) >= 0, parameter.is_trainable) << parameter.name;
  }
  // Nothing below the lowest trained weight is differentiated.
  for (const auto& instruction : program.instructions) {
    if (instruction.phase != Phase::backward) continue;
    EXPECT_GE(instruction.unit, 2) << instruction.operation->name;
  }
}

TEST(Accumulate, TheFirstWriterOverwritesOnceAndLaterOnesAdd) {
  Parameters parameters;
  const StepProgram program = trained(parameters);
  // The tied table is written by the head first, then by the embedding.
  const auto mode = [](const Instruction* i) {
    return static_cast<Accumulate>(i->attributes.integer("accumulate", -1));
  };
  EXPECT_EQ(mode(toy::all(program, "linear_cross_entropy_gradient")[0]), Accumulate::add_after_first);
  EXPECT_EQ(mode(toy::all(program, "embedding_backward")[0]), Accumulate::add);
  for (const auto* instruction : toy::all(program, "linear_backward_weight")) {
    EXPECT_EQ(mode(instruction), Accumulate::add_after_first);
  }
}

TEST(Accumulate, WithOneMicroBatchTheFirstWriterAlwaysOverwrites) {
  Parameters parameters;
  const StepProgram program = trained(parameters, RecomputeMode::none, true);
  const auto mode = [](const Instruction* i) {
    return static_cast<Accumulate>(i->attributes.integer("accumulate", -1));
  };
  EXPECT_EQ(mode(toy::all(program, "linear_cross_entropy_gradient")[0]), Accumulate::overwrite);
  EXPECT_EQ(mode(toy::all(program, "embedding_backward")[0]), Accumulate::add);
  for (const auto* instruction : toy::all(program, "linear_backward_weight")) {
    EXPECT_EQ(mode(instruction), Accumulate::overwrite);
  }
}

TEST(Recompute, NormsAndActivationsAreRepeatedInEveryMode) {
  for (const auto mode : {RecomputeMode::none, RecomputeMode::selective}) {
    Parameters parameters;
    const StepProgram program = trained(parameters, mode);
    expect_sound(program);
    EXPECT_EQ(toy::count(program, "activation", Phase::recompute), 2);
    EXPECT_EQ(toy::count(program, "rms_norm", Phase::recompute), 2);
    EXPECT_EQ(toy::count(program, "linear", Phase::recompute), 0);
  }
}

/// x + down(attention(a, a, a)) with a = project(x).
StepProgram trained_attention(Parameters& parameters, RecomputeMode mode) {
  ProgramBuilder e({.name = "toy", .token_capacity = 32}, parameters);
  const auto normal = Initialization::normal(0.02);
  e.begin_unit("block 0");
  const Value table = e.weight("embed", {64, 16}, normal);
  const Value x = e.embedding(e.input_ids(), table);
  const Value a = e.split_heads(e.linear(x, e.weight("project", {16, 16}, normal)), 2);
  const Value o = e.merge_heads(e.attention(a, a, a, {{"scale", 1.0}}));
  e.language_model_head(e.add(x, e.linear(o, e.weight("down", {16, 16}, normal))), table, {});
  StepProgram program = e.take();
  differentiate(program);
  recompute(program, mode);
  return program;
}

TEST(Recompute, SelectiveRepeatsAttentionToo) {
  Parameters parameters;
  EXPECT_EQ(toy::count(trained_attention(parameters, RecomputeMode::none), "attention", Phase::recompute), 0);
  EXPECT_EQ(toy::count(trained_attention(parameters, RecomputeMode::selective), "attention", Phase::recompute), 1);
}

TEST(Recompute, NothingIsRepeatedIfItsInputWouldHaveToBeKeptForThat) {
  Parameters parameters;
  ProgramBuilder e({.name = "toy", .token_capacity = 8}, parameters);
  e.begin_unit("block 0");
  const auto normal = Initialization::normal(0.02);
  const Value x = e.linear(e.embedding(e.input_ids(), e.weight("a", {16, 8}, normal)), e.weight("w", {8, 8}, normal));
  // The backward of dropout needs its gradient alone, so its input is gone by then.
  const Value dropped = e.dropout(x, 0.5);
  const Value h = e.activation(e.linear(dropped, e.weight("v", {8, 8}, normal)), Activation::gelu);
  e.language_model_head(h, e.weight("head", {16, 8}, normal), {});
  StepProgram program = e.take();
  differentiate(program);
  recompute(program, RecomputeMode::none);
  expect_sound(program);
  EXPECT_EQ(toy::count(program, "dropout", Phase::recompute), 0);
  EXPECT_EQ(toy::count(program, "activation", Phase::recompute), 1);
}

TEST(Recompute, FullRepeatsABlockButNotWhatTheBackwardDoesNotNeed) {
  Parameters parameters;
  const StepProgram program = trained(parameters, RecomputeMode::full);
  expect_sound(program);
  EXPECT_EQ(toy::count(program, "linear", Phase::recompute),
            2);  // up of both blocks; down's result is needed by nothing
  EXPECT_EQ(toy::count(program, "activation", Phase::recompute), 2);
  EXPECT_EQ(toy::count(program, "add", Phase::recompute), 0);
  EXPECT_EQ(toy::count(program, "embedding", Phase::recompute), 0);
}

TEST(Recompute, EachUnitHasItsOwnMode) {
  Parameters parameters;
  StepProgram program = toy::forward(parameters);
  differentiate(program);
  using enum RecomputeMode;
  recompute(program, std::vector{none, full, none, none});  // embedding, block 0, block 1, head
  expect_sound(program);
  ASSERT_EQ(toy::count(program, "linear", Phase::recompute), 1);
  for (const auto& instruction : program.instructions) {
    if (instruction.operation->name == "linear" && instruction.phase == Phase::recompute) {
      EXPECT_EQ(program.units[static_cast<std::size_t>(instruction.unit)], "block 0");
    }
  }
}

TEST(Offload, AUnitThatIsToKeepItsActivationsMovesNone) {
  for (const bool stays : {false, true}) {
    Parameters parameters;
    StepProgram program = trained(parameters);
    Offload moved{.activations = Tier::host};
    moved.resident_units = {true, stays, true, true};
    offload(program, moved);
    expect_sound(program);
    const auto transfers = toy::all(program, "transfer");
    EXPECT_EQ(transfers.empty(), stays);
    for (const auto* transfer : transfers)
      EXPECT_EQ(program.units[static_cast<std::size_t>(transfer->unit)], "block 0");
  }
}

TEST(Fuse, AResidualIsAddedInTheProductBeforeIt) {
  Parameters parameters;
  StepProgram program = trained(parameters);
  fuse(program);
  expect_sound(program);
  EXPECT_EQ(toy::count(program, "add", Phase::forward), 0);
  int with_residual = 0;
  for (const auto* instruction : toy::all(program, "linear")) with_residual += instruction->inputs[3] >= 0 ? 1 : 0;
  EXPECT_EQ(with_residual, 2);
}

TEST(Fuse, ASumOfOtherThingsIsMadeInTheNormThatReadsIt) {
  Parameters parameters;
  ProgramBuilder e({.name = "toy", .token_capacity = 8}, parameters);
  e.begin_unit("block 0");
  const auto normal = Initialization::normal(0.02);
  const Value a = e.embedding(e.input_ids(), e.weight("a", {16, 8}, normal));
  const Value b = e.embedding(e.positions(), e.weight("b", {16, 8}, normal));
  const Value x = e.add(a, b);
  const Value h = e.rms_norm(x, e.weight("norm", {8}, Initialization::ones()), 1e-6);
  e.language_model_head(e.add(x, e.activation(h, Activation::relu)), e.weight("head", {16, 8}, normal), {});
  StepProgram program = e.take();
  fuse(program);
  expect_sound(program);
  const auto norms = toy::all(program, "rms_norm");
  ASSERT_EQ(norms.size(), 1u);
  EXPECT_EQ(norms[0]->inputs[0], a.id);
  EXPECT_EQ(norms[0]->inputs[2], b.id);
  EXPECT_EQ(norms[0]->outputs[2], x.id);
  EXPECT_EQ(toy::count(program, "add", Phase::forward), 1);  // relu is no product
}

TEST(Fuse, AProductThatIsNeededElsewhereStaysAsItIs) {
  Parameters parameters;
  ProgramBuilder e({.name = "toy", .token_capacity = 8}, parameters);
  e.begin_unit("block 0");
  const auto normal = Initialization::normal(0.02);
  const Value x = e.embedding(e.input_ids(), e.weight("a", {16, 8}, normal));
  const Value h = e.linear(x, e.weight("w", {8, 8}, normal));
  e.language_model_head(e.add(e.add(x, h), e.activation(h, Activation::relu)), e.weight("head", {16, 8}, normal), {});
  StepProgram program = e.take();
  fuse(program);
  expect_sound(program);
  EXPECT_EQ(toy::all(program, "linear")[0]->inputs[3], -1);
  EXPECT_EQ(toy::count(program, "add", Phase::forward), 2);
}

TEST(GroupLinears, ProductsOfOneInputAreMadeWhereTheFirstIs) {
  Parameters parameters;
  ProgramBuilder e({.name = "toy", .token_capacity = 8}, parameters);
  e.begin_unit("block 0");
  const auto normal = Initialization::normal(0.02);
  const auto weight = [&](const char* name) { return e.weight(name, {8, 8}, normal); };
  const Value x = e.embedding(e.input_ids(), e.weight("embed", {16, 8}, normal));
  const Value bias = e.weight("b", {8}, normal);
  const Value q = e.linear(x, weight("q")), a = e.activation(q, Activation::relu);
  const Value k = e.linear(x, weight("k"), bias);
  const Value added = e.add(a, e.linear(x, weight("o")));                       // gets a residual
  const Value conv = e.linear(x, weight("conv"), {}, true);                     // GPT-2's
  const Value late = e.linear(x, e.activation(weight("l"), Activation::relu));  // of a weight that is made meanwhile
  Value sum = e.add(k, added);
  for (const Value part : {conv, late}) sum = e.add(sum, e.activation(part, Activation::relu));
  e.begin_unit("head");
  const Value other = e.linear(x, weight("other"));
  e.language_model_head(e.add(sum, e.activation(other, Activation::relu)), e.weight("head", {16, 8}, normal), {});
  StepProgram program = e.take();
  fuse(program);
  group_linears(program);
  expect_sound(program);
  const auto groups = toy::all(program, "linear_group");
  ASSERT_EQ(groups.size(), 1u);
  const auto label = [&](int id) { return id < 0 ? std::string("absent") : program.at(id).label; };
  std::vector<std::string> inputs;
  for (const int id : groups[0]->inputs) inputs.push_back(label(id));
  EXPECT_EQ(inputs, (std::vector<std::string>{"embedding", "q", "absent", "k", "b"}));
  EXPECT_EQ(groups[0]->outputs, (std::vector<int>{q.id, k.id}));
  EXPECT_EQ(toy::all(program, "linear").size(), 4u);
}

TEST(Allocate, BuffersThatLiveAtOnceNeverOverlap) {
  for (const auto& [mode, one_micro_batch] :
       {std::pair{RecomputeMode::none, false}, std::pair{RecomputeMode::none, true},
        std::pair{RecomputeMode::selective, true}, std::pair{RecomputeMode::full, false}}) {
    Parameters parameters;
    StepProgram program = trained(parameters, mode, one_micro_batch);
    StepProgram norm = make_norm_program(parameters), update = make_optimizer_program(parameters, DType::f32);
    const MemoryPlan plan = allocate({&program, &norm, &update}, 4096);
    for (const auto* p : {&program, &norm, &update}) {
      for (std::size_t i = 0; i < p->buffers.size(); ++i) {
        const Buffer& a = p->buffers[i];
        if (a.view_of >= 0 || (a.first_use < 0 && !a.is_persistent)) continue;
        ASSERT_GE(a.offset, 0);
        ASSERT_LE(static_cast<std::uint64_t>(a.offset + a.bytes()), plan.device.peak);
        EXPECT_EQ(a.offset % 64, 0);
        for (std::size_t j = 0; j < i; ++j) {
          const Buffer& b = p->buffers[j];
          if (b.view_of >= 0 || (b.first_use < 0 && !b.is_persistent)) continue;
          const bool same_storage = a.is_timed() && b.is_timed() && a.storage == b.storage;
          const bool apart_in_time = a.is_timed() && b.is_timed() &&
                                     (p->at(a.storage).first_use > p->at(b.storage).last_use ||
                                      p->at(b.storage).first_use > p->at(a.storage).last_use);
          const bool apart_in_space = a.offset + a.bytes() <= b.offset || b.offset + b.bytes() <= a.offset;
          EXPECT_TRUE(same_storage || apart_in_time || apart_in_space) << a.label << " and " << b.label;
        }
      }
    }
  }
}

TEST(Allocate, WhatTheNvmeTierExchangesLiesOnPages) {
  Parameters parameters;
  StepProgram program = trained(parameters, RecomputeMode::none, true);
  const Offload moved{.parameters = Tier::nvme};
  offload(program, moved);
  StepProgram update = make_optimizer_program(parameters, DType::f32, {}, moved);
  allocate({&program, &update}, 4096 + 64);
  int transfers = 0;
  for (const auto* p : {&program, &update}) {
    for (const auto& instruction : p->instructions) {
      if (instruction.queue != Queue::transfer) continue;
      ++transfers;
      for (const auto* operands : {&instruction.inputs, &instruction.outputs}) {
        for (const int operand : *operands) EXPECT_EQ(p->at(operand).offset % kPageBytes, 0) << p->at(operand).label;
      }
    }
  }
  EXPECT_GT(transfers, 2);
}

TEST(Allocate, TheBillAddsUpAndCountsWhatTheoryCounts) {
  Parameters parameters;
  StepProgram program = toy::forward(parameters, 32, DType::bf16);
  differentiate(program);
  accumulate(program);
  StepProgram norm = make_norm_program(parameters), update = make_optimizer_program(parameters, DType::bf16);
  const Bill bill = allocate({&program, &norm, &update}, 4096).device;
  std::uint64_t sum = 0;
  for (const auto bytes : bill.at_peak) sum += bytes;
  EXPECT_EQ(sum, bill.peak);
  const auto greatest = [&](BufferClass c) { return bill.greatest[static_cast<std::size_t>(c)]; };
  const auto count = static_cast<std::uint64_t>(parameters.count());
  EXPECT_EQ(count, 64u * 16 + 2 * (16 + 2 * 48 * 16));
  EXPECT_EQ(greatest(BufferClass::parameters), 2 * count);
  EXPECT_EQ(greatest(BufferClass::master_weights), 4 * count);
  EXPECT_EQ(greatest(BufferClass::gradients), 4 * count);
  EXPECT_EQ(greatest(BufferClass::optimizer_states), 8 * count);
}

TEST(Allocate, TheOnlyMicroBatchsGradientsTakeMemoryFromTheirFirstWriterOn) {
  std::map<bool, std::uint64_t> peak;
  for (const bool one_micro_batch : {false, true}) {
    Parameters parameters;
    StepProgram program = trained(parameters, RecomputeMode::none, one_micro_batch);
    StepProgram norm = make_norm_program(parameters), update = make_optimizer_program(parameters, DType::f32);
    const Bill bill = allocate({&program, &norm, &update}, 0).device;
    peak[one_micro_batch] = bill.peak;
    EXPECT_EQ(bill.greatest[static_cast<std::size_t>(BufferClass::gradients)],
              4 * static_cast<std::uint64_t>(parameters.count()));
    for (const auto& parameter : parameters.list) {
      const auto find = [&](const StepProgram& p) { return p.at(p.find_persistent(gradient_label(parameter.name))); };
      const Buffer made = find(program);
      EXPECT_EQ(made.is_carried, one_micro_batch) << parameter.name;
      for (const Buffer& later : {find(norm), find(update)}) {
        EXPECT_EQ(later.is_carried, one_micro_batch) << parameter.name;
        EXPECT_EQ(later.offset, made.offset) << parameter.name;
      }
      if (one_micro_batch) {
        EXPECT_EQ(program.instructions[static_cast<std::size_t>(made.first_use)].phase, Phase::backward);
        EXPECT_EQ(made.last_use, static_cast<int>(program.instructions.size()) - 1);
      }
    }
  }
  EXPECT_LT(peak[true], peak[false]);
}

TEST(Allocate, RecomputationHoldsFewerActivations) {
  std::vector<std::uint64_t> held;
  for (const auto mode : {RecomputeMode::none, RecomputeMode::full}) {
    Parameters parameters;
    StepProgram program = trained(parameters, mode);
    held.push_back(allocate({&program}, 0).device.greatest[static_cast<std::size_t>(BufferClass::activations)]);
  }
  EXPECT_GT(held[0], held[1]);
}

TEST(Allocate, AResidualGradientIsAddedToWhereItLies) {
  Parameters parameters;
  StepProgram program = trained(parameters);
  allocate({&program}, 0);
  for (const auto* instruction : toy::all(program, "rms_norm_backward")) {
    const int addend = program.root(instruction->inputs[4]), dx = program.root(instruction->outputs[0]);
    EXPECT_EQ(program.at(dx).storage, program.at(addend).storage);
  }
}

TEST(Allocate, AnInputThatIsNeededLaterIsNotOverwritten) {
  Parameters parameters;
  StepProgram program = trained(parameters);
  allocate({&program}, 0);
  // Without recomputation the backward still needs the input of the activation.
  for (const auto* instruction : toy::all(program, "activation")) {
    const int x = program.root(instruction->inputs[0]), y = program.root(instruction->outputs[0]);
    EXPECT_NE(program.at(x).storage, program.at(y).storage);
  }
}

TEST(OptimizerPrograms, DecayFallsOnMatricesAlone) {
  Parameters parameters;
  toy::forward(parameters);
  parameters.optimizer.weight_decay = 0.1;
  const StepProgram update = make_optimizer_program(parameters, DType::f32);
  for (const auto& instruction : update.instructions) {
    const std::string& label = update.at(instruction.outputs[0]).label;
    const bool is_matrix = parameters.find(label)->shape.rank() >= 2;
    EXPECT_EQ(instruction.attributes.real("weight_decay"), is_matrix ? 0.1 : 0.0) << label;
  }
}

TEST(OptimizerPrograms, MasterWeightsAreSeparateOnlyBelowF32) {
  Parameters parameters;
  toy::forward(parameters);
  EXPECT_EQ(make_optimizer_program(parameters, DType::f32).find_persistent(master_label("embed")), -1);
  EXPECT_GE(make_optimizer_program(parameters, DType::bf16).find_persistent(master_label("embed")), 0);
}

}  // namespace
}  // namespace heddle
