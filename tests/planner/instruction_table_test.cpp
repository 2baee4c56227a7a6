// The right values are the formulas of ops/operations.md, written out for the shapes of one toy program.
#include "planner/instruction_table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "program/builder.h"
#include "program/passes/passes.h"

namespace heddle {
namespace {

constexpr double kTokens = 10, kHidden = 8, kWide = 24, kVocabulary = 50;

/// embedding, one product, a loss.
StepProgram toy_program(Parameters& parameters, DType activation_type = DType::f32) {
  ProgramBuilder builder(
      {.name = "toy", .activation_type = activation_type, .token_capacity = 16, .document_capacity = 4}, parameters);
  builder.begin_unit("block 0");
  const Value table = builder.weight("table", {50, 8}, Initialization::normal(0.02));
  const Value x = builder.embedding(builder.input_ids(), table);
  const Value y = builder.linear(x, builder.weight("up", {24, 8}, Initialization::normal(0.02)));
  builder.language_model_head(y, builder.weight("head", {50, 24}, Initialization::normal(0.02)), {});
  StepProgram program = builder.take();
  differentiate(program);
  accumulate(program);
  allocate({&program}, 64);
  return program;
}

StreamSizes sizes(bool is_first) {
  return {.documents = {4, 6}, .supervised_tokens = 7, .is_first_micro_batch = is_first};
}

Work find_work(const StepProgram& program, std::string_view operation, bool is_first = true) {
  for (const auto& instruction : program.instructions) {
    if (instruction.operation->name == operation) return work_of(program, instruction, sizes(is_first));
  }
  ADD_FAILURE() << operation << " is not in the program";
  return {};
}

TEST(WorkOf, AProductReadsItsOperandsOnce) {
  Parameters parameters;
  const StepProgram program = toy_program(parameters);
  const Work work = find_work(program, "linear");
  EXPECT_EQ(work.flops, 2 * kTokens * kHidden * kWide);  // of the tokens there are, not of the capacity
  EXPECT_EQ(work.bytes.read, 4 * (kTokens * kHidden + kWide * kHidden));
  EXPECT_EQ(work.bytes.written, 4 * kTokens * kWide);
  EXPECT_EQ(work.bytes.updated, 0);
}

TEST(WorkOf, ProductsOfBFloat16AreMeasuredByTheirOwnCeiling) {
  Parameters parameters, of_bf16;
  EXPECT_FALSE(find_work(toy_program(parameters), "linear").in_bf16);
  const StepProgram program = toy_program(of_bf16, DType::bf16);
  for (const char* name : {"linear", "linear_backward_weight", "linear_cross_entropy_gradient"}) {
    EXPECT_TRUE(find_work(program, name).in_bf16) << name;
  }
  EXPECT_FALSE(find_work(program, "embedding").in_bf16);
}

TEST(WorkOf, AGradientIsReadWhereItIsAddedTo) {
  Parameters parameters;
  const StepProgram program = toy_program(parameters);
  const Work first = find_work(program, "linear_backward_weight", true);
  const Work later = find_work(program, "linear_backward_weight", false);
  EXPECT_EQ(first.bytes.written, 4 * kWide * kHidden);
  EXPECT_EQ(first.bytes.updated, 0);
  EXPECT_EQ(later.bytes.written, 0);
  EXPECT_EQ(later.bytes.updated, 2 * 4 * kWide * kHidden);
  EXPECT_EQ(later.flops, first.flops);
}

TEST(WorkOf, OfATableOnlyTheRowsThatAreLookedUpCount) {
  Parameters parameters;
  const StepProgram program = toy_program(parameters);
  const Work forward = find_work(program, "embedding");
  EXPECT_EQ(forward.bytes.read, 4 * kTokens + 4 * kTokens * kHidden);
  EXPECT_EQ(forward.bytes.written, 4 * kTokens * kHidden);
  const Work backward = find_work(program, "embedding_backward", true);
  EXPECT_EQ(backward.bytes.updated, 2 * 4 * kTokens * kHidden);
  EXPECT_EQ(backward.bytes.written, 4 * kVocabulary * kHidden);  // cleared first
  EXPECT_EQ(find_work(program, "embedding_backward", false).bytes.written, 0);
}

TEST(WorkOf, ALossComputesSupervisedTokensOnly) {
  Parameters parameters;
  const StepProgram program = toy_program(parameters);
  EXPECT_EQ(find_work(program, "linear_cross_entropy_gradient").flops, 6 * 7 * kWide * kVocabulary);
}

TEST(WorkOf, AttentionCountsNoPairsBetweenDocuments) {
  Parameters parameters;
  ProgramBuilder builder({.name = "toy", .token_capacity = 16, .document_capacity = 4}, parameters);
  builder.begin_unit("block 0");
  const Value x = builder.embedding(builder.input_ids(), builder.weight("table", {50, 8}, Initialization::normal(1)));
  const Value heads = builder.split_heads(x, 2);
  builder.attention(heads, heads, heads, {{"scale", 1.0}});
  const StepProgram program = builder.take();
  // Two products of 2 FLOPs for each of the 4 * 4 / 2 + 6 * 6 / 2 pairs, 2 heads of 4.
  EXPECT_EQ(find_work(program, "attention").flops, 4 * (8 + 18) * kHidden);
}

TEST(InstructionTable, GroupsByPhaseOperationAndShapes) {
  Parameters parameters;
  const StepProgram program = toy_program(parameters);
  ProgramRuns runs;
  runs.program = &program;
  runs.executions = {sizes(true), sizes(false), sizes(true), sizes(false)};  // two steps of two micro-batches
  for (std::size_t i = 0; i < program.instructions.size(); ++i) runs.seconds.push_back(0.5 + static_cast<double>(i));
  ThreadCeilings ceilings{.threads = 1, .flops = 1e3, .read = 1e9, .write = 1e9, .update = 1e9};
  const InstructionTable table = make_instruction_table(std::span(&runs, 1), ceilings, 2);
  ASSERT_EQ(table.groups.size(), program.instructions.size());  // all differ
  EXPECT_TRUE(std::ranges::is_sorted(table.groups, std::greater<>(), &InstructionGroup::seconds));
  const auto linear = std::ranges::find(table.groups, "linear", &InstructionGroup::operation);
  ASSERT_NE(linear, table.groups.end());
  EXPECT_EQ(linear->shapes, "[16, 8] [24, 8] -> [16, 24]");
  EXPECT_EQ(linear->calls, 2);
  const double flops = 2 * 2 * kTokens * kHidden * kWide;  // two micro-batches
  EXPECT_DOUBLE_EQ(linear->work.flops, flops);
  EXPECT_TRUE(linear->is_compute_bound);
  EXPECT_DOUBLE_EQ(linear->ceiling_seconds, flops / 1e3);
  const auto embedding = std::ranges::find(table.groups, "embedding", &InstructionGroup::operation);
  EXPECT_FALSE(embedding->is_compute_bound);
  double seconds = 0;
  for (const auto& group : table.groups) seconds += group.seconds;
  EXPECT_DOUBLE_EQ(table.total().seconds, seconds);
}

TEST(InstructionTable, NamesWhatTakesMostTimeBeyondItsCeiling) {
  InstructionTable table;
  table.ceilings = {.threads = 1, .flops = 1e9, .read = 1e9, .write = 1e9, .update = 1e9};
  table.steps = 1;
  table.step_seconds = 1;
  table.tokens = 100;
  table.groups.push_back({.operation = "long", .seconds = 0.5, .ceiling_seconds = 0.49});
  table.groups.push_back({.operation = "slow", .seconds = 0.3, .ceiling_seconds = 0.1});
  table.groups.push_back({.operation = "cached", .seconds = 0.1, .ceiling_seconds = 0.2});
  const Json document = instruction_table_document(table);
  ASSERT_EQ(document["most_beyond_ceiling"].size(), 2u);
  EXPECT_EQ(document["most_beyond_ceiling"][0]["operation"], "slow");
  EXPECT_EQ(document["tokens_per_second"], 100.0);
  EXPECT_DOUBLE_EQ(document["instructions"][1]["fraction"].get<double>(), 0.1 / 0.3);
  EXPECT_NEAR(document["between_instructions_seconds"].get<double>(), 0.1, 1e-12);
}

}  // namespace
}  // namespace heddle
