#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "program/builder.h"
#include "program/passes/passes.h"

/// Toy programs for the passes: no model, no kernel, no data.
namespace heddle::toy {

/// Two blocks of x + down(act(up(norm(x)))), and a tied head.
inline StepProgram forward(Parameters& parameters, std::int64_t tokens = 32, DType type = DType::f32) {
  ProgramBuilder e({.name = "toy", .activation_type = type, .token_capacity = tokens}, parameters);
  const auto normal = Initialization::normal(0.02);
  e.begin_unit("embedding");
  const Value table = e.weight("embed", {64, 16}, normal);
  Value x = e.embedding(e.input_ids(), table);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string prefix = "block." + std::to_string(layer) + ".";
    e.begin_unit("block " + std::to_string(layer));
    Value h = e.rms_norm(x, e.weight(prefix + "norm", {16}, Initialization::ones()), 1e-6);
    {
      const MlpScope mlp(e);
      h = e.linear(h, e.weight(prefix + "up", {48, 16}, normal));
      h = e.activation(h, Activation::gelu);
      h = e.linear(h, e.weight(prefix + "down", {16, 48}, normal));
    }
    x = e.add(x, h);
  }
  e.begin_unit("head");
  e.language_model_head(x, table, {});
  return e.take();
}

inline std::ptrdiff_t count(const StepProgram& program, std::string_view operation, Phase phase) {
  return std::count_if(program.instructions.begin(), program.instructions.end(),
                       [&](const Instruction& i) { return i.operation->name == operation && i.phase == phase; });
}

inline std::vector<const Instruction*> all(const StepProgram& program, std::string_view operation) {
  std::vector<const Instruction*> found;
  for (const auto& instruction : program.instructions) {
    if (instruction.operation->name == operation) found.push_back(&instruction);
  }
  return found;
}

/// Every operand is written before it is read, in the order of the list.
inline void expect_sound(const StepProgram& program) {
  std::set<int> written;
  for (const auto& instruction : program.instructions) {
    for (const int input : instruction.inputs) {
      if (input < 0 || program.at(program.root(input)).is_persistent) continue;
      EXPECT_TRUE(written.contains(program.root(input)))
          << instruction.operation->name << " reads " << program.at(input).label << " before it is written";
    }
    for (const int output : instruction.outputs) {
      if (output >= 0) written.insert(program.root(output));
    }
  }
}

}  // namespace heddle::toy
