#include <unordered_map>

#include "program/passes/passes.h"

namespace heddle {
namespace {

class Grouping {
 public:
  void add(StepProgram& program, Instruction instruction) {
    if (can_join(program, instruction)) {
      const auto [first, is_first] = first_of_.try_emplace(instruction.inputs[0], kept_.size());
      if (!is_first && join(program, kept_[first->second], instruction, first->second)) return;
      first->second = kept_.size();
    }
    for (const int output : instruction.outputs) {
      if (output >= 0) made_at_[program.root(output)] = kept_.size();
    }
    kept_.push_back(std::move(instruction));
  }
  std::vector<Instruction> take() { return std::move(kept_); }

 private:
  /// A product that a group can hold: of a weight by rows, without a residual, in the type of x.
  static bool can_join(const StepProgram& program, const Instruction& instruction) {
    return instruction.operation->name == "linear" && instruction.inputs[3] < 0 &&
           instruction.attributes.integer("transposed") == 0 && instruction.attributes.integer("f32_output") == 0 &&
           !program.at(program.root(instruction.outputs[0])).is_persistent;
  }

  /// Makes the product at `place`, where the first of its x is made, if its weight and bias are there by then.
  bool join(const StepProgram& program, Instruction& first, const Instruction& product, std::size_t place) {
    if (product.unit != first.unit || product.phase != first.phase || product.in_mlp != first.in_mlp) return false;
    for (const int operand : {product.inputs[1], product.inputs[2]}) {
      if (operand < 0) continue;
      const auto made = made_at_.find(program.root(operand));
      if (made != made_at_.end() && made->second >= place) return false;
    }
    if (first.operation->name == "linear") {
      first.operation = &find_operation("linear_group");
      first.inputs.resize(3);
      first.attributes = {};
    }
    first.inputs.insert(first.inputs.end(), {product.inputs[1], product.inputs[2]});
    first.outputs.push_back(product.outputs[0]);
    made_at_[program.root(product.outputs[0])] = place;
    return true;
  }

  std::vector<Instruction> kept_;
  std::unordered_map<int, std::size_t> first_of_;  // x -> where its products are made
  std::unordered_map<int, std::size_t> made_at_;   // root -> where it is written last
};

}  // namespace

void group_linears(StepProgram& program) {
  Grouping grouping;
  for (Instruction& instruction : program.instructions) grouping.add(program, std::move(instruction));
  program.instructions = grouping.take();
}

}  // namespace heddle
