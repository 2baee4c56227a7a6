#include <gtest/gtest.h>

#include <map>

#include "program/passes/passes.h"
#include "toy.h"

namespace heddle {
namespace {

constexpr std::int64_t kTokens = 40, kTile = 16, kTiles = 3;  // the last of 8 tokens

StepProgram tiled(Parameters& parameters, RecomputeMode mode, std::int64_t tile = kTile) {
  StepProgram program = toy::forward(parameters, kTokens);
  differentiate(program);
  recompute(program, mode, true);
  fuse(program);
  tile_mlp(program, tile);
  accumulate(program);
  return program;
}

/// The rows that an operand has of each tile, in the order of the list.
std::vector<std::int64_t> rows(const StepProgram& program, std::string_view operation, Phase phase, std::size_t input) {
  std::vector<std::int64_t> rows;
  for (const Instruction* instruction : toy::all(program, operation)) {
    if (instruction->phase == phase) rows.push_back(program.at(instruction->inputs[input]).type.shape[0]);
  }
  return rows;
}

TEST(TileMlp, EachTileIsComputedFromItsRows) {
  for (const auto mode : {RecomputeMode::none, RecomputeMode::full}) {
    Parameters parameters;
    const StepProgram program = tiled(parameters, mode);
    toy::expect_sound(program);
    const std::vector<std::int64_t> of_two_blocks = {16, 16, 8, 16, 16, 8};
    EXPECT_EQ(rows(program, "activation", Phase::forward, 0), of_two_blocks);
    EXPECT_EQ(rows(program, "activation", Phase::recompute, 0), of_two_blocks);
    EXPECT_EQ(rows(program, "activation_backward", Phase::backward, 0), of_two_blocks);
    EXPECT_EQ(rows(program, "rms_norm", Phase::forward, 0), (std::vector<std::int64_t>{kTokens, kTokens}));
  }
}

TEST(TileMlp, ViewsOfTheWholeStandAtTheirRows) {
  Parameters parameters;
  const StepProgram program = tiled(parameters, RecomputeMode::none);
  std::map<int, std::int64_t> next;  // by root of an MLP's output
  for (const Instruction* linear : toy::all(program, "linear")) {
    const Buffer& y = program.at(linear->outputs[0]);
    if (y.type.shape[1] != 16) continue;  // down
    auto& first = next[y.view_of];
    EXPECT_EQ(y.first_token, first);
    EXPECT_EQ(y.view_offset, first * 16 * 4);
    EXPECT_EQ(program.at(y.view_of).type.shape, (Shape{kTokens, 16}));
    EXPECT_EQ(y.type_of(kTokens).shape[0], y.type.shape[0]);
    EXPECT_EQ(y.type_of(20).shape[0], std::max<std::int64_t>(0, std::min<std::int64_t>(16, 20 - first)));
    first += y.type.shape[0];
  }
  ASSERT_EQ(next.size(), 2u);
  for (const auto& [root, end] : next) EXPECT_EQ(end, kTokens);
}

TEST(TileMlp, TheInsideTakesTheMemoryOfOneTile) {
  for (const auto mode : {RecomputeMode::none, RecomputeMode::full}) {
    Parameters parameters;
    StepProgram program = tiled(parameters, mode);
    allocate({&program}, 0);
    for (const Buffer& buffer : program.buffers) {
      if (buffer.first_use < 0 || buffer.view_of >= 0 || buffer.buffer_class != BufferClass::activations) continue;
      EXPECT_LE(buffer.bytes(), std::max(kTile * 48, kTokens * 16) * 4) << buffer.label;
    }
    // In the backward up, act(up), whose place their gradients take in turn.
    std::map<std::pair<int, bool>, std::set<int>> rooms;  // of a unit in one direction
    for (const Instruction& instruction : program.instructions) {
      for (const int output : instruction.outputs) {
        if (output >= 0 && program.at(output).type.shape.back() == 48 && program.at(output).type.token_axis == 0)
          rooms[{instruction.unit, instruction.phase != Phase::forward}].insert(program.root(output));
      }
    }
    ASSERT_EQ(rooms.size(), 4u);
    for (const auto& [where, roots] : rooms) EXPECT_EQ(roots.size(), where.second ? 2u : 1u);
  }
}

TEST(TileMlp, GradientsOfWeightsGatherOverTheTiles) {
  Parameters parameters;
  const StepProgram program = tiled(parameters, RecomputeMode::full);
  std::map<int, std::vector<Accumulate>> modes;  // by gradient
  for (const Instruction* instruction : toy::all(program, "linear_backward_weight")) {
    modes[instruction->outputs[0]].push_back(static_cast<Accumulate>(instruction->attributes.integer("accumulate")));
  }
  ASSERT_EQ(modes.size(), 4u);
  for (const auto& [gradient, order] : modes) {
    EXPECT_EQ(order, (std::vector{Accumulate::add_after_first, Accumulate::add, Accumulate::add}));
  }
}

TEST(TileMlp, OneTileIsTheWhole) {
  Parameters parameters;
  const StepProgram program = tiled(parameters, RecomputeMode::none, kTokens);
  EXPECT_EQ(toy::count(program, "activation", Phase::forward), 2);
  for (const Buffer& buffer : program.buffers) EXPECT_EQ(buffer.first_token, 0);
}

TEST(TileMlp, WithoutABackwardTheForwardIsTiled) {
  Parameters parameters;
  StepProgram program = toy::forward(parameters, kTokens);
  fuse(program);
  tile_mlp(program, kTile);
  toy::expect_sound(program);
  EXPECT_EQ(toy::count(program, "activation", Phase::forward), 2 * kTiles);
}

TEST(Recompute, TheBackwardOfAnMlpRebuildsItsInside) {
  Parameters parameters;
  StepProgram program = toy::forward(parameters, kTokens);
  differentiate(program);
  recompute(program, RecomputeMode::none, true);
  toy::expect_sound(program);
  EXPECT_EQ(toy::count(program, "linear", Phase::recompute), 2);  // up, not down: no backward reads its result
}

}  // namespace
}  // namespace heddle
