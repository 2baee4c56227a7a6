#include <unordered_map>

#include "program/passes/passes.h"

namespace heddle {
namespace {

class Fusion {
 public:
  explicit Fusion(StepProgram& program) : program_(program), removed_(program.instructions.size(), false) {
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      const auto& instruction = program.instructions[i];
      for (const int output : instruction.outputs) {
        if (output >= 0 && !program.at(program.root(output)).is_persistent) producer_.emplace(program.root(output), i);
      }
      for (const int input : instruction.inputs) {
        if (input < 0) continue;
        ++uses_[program.root(input)];
        first_use_.emplace(program.root(input), i);
      }
    }
  }

  void run() {
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      if (program_.instructions[i].operation->name != "add") continue;
      removed_[i] = add_in_product(i) || add_in_norm(i);
    }
    std::vector<Instruction> kept;
    for (std::size_t i = 0; i < removed_.size(); ++i) {
      if (!removed_[i]) kept.push_back(std::move(program_.instructions[i]));
    }
    program_.instructions = std::move(kept);
  }

 private:
  bool is_there_before(int buffer, std::size_t instruction) const {
    const auto made = producer_.find(program_.root(buffer));
    return made == producer_.end() || made->second < instruction;
  }

  /// x + linear(a): the sum is made where the product is stored.
  bool add_in_product(std::size_t index) {
    const Instruction& add = program_.instructions[index];
    for (const std::size_t side : {1u, 0u}) {
      const int product = add.inputs[side], other = add.inputs[1 - side];
      const auto made = producer_.find(program_.root(product));
      if (made == producer_.end() || uses_.at(program_.root(product)) != 1) continue;
      Instruction& linear = program_.instructions[made->second];
      if (linear.operation->name != "linear" || linear.inputs[3] >= 0 || linear.phase != add.phase) continue;
      if (linear.outputs[0] != product || !is_there_before(other, made->second)) continue;
      if (program_.at(other).type.dtype != program_.at(product).type.dtype) continue;
      linear.inputs[3] = other;
      linear.outputs[0] = add.outputs[0];
      producer_[program_.root(add.outputs[0])] = made->second;
      return true;
    }
    return false;
  }

  /// norm(x + y): the sum is made where it is read first.
  bool add_in_norm(std::size_t index) {
    const Instruction& add = program_.instructions[index];
    const int sum = add.outputs[0];
    const auto reader = first_use_.find(program_.root(sum));
    if (reader == first_use_.end()) return false;
    Instruction& norm = program_.instructions[reader->second];
    const bool is_rms = norm.operation->name == "rms_norm";
    if (!is_rms && norm.operation->name != "layer_norm") return false;
    const std::size_t residual = is_rms ? 2 : 3, kept_sum = residual;  // of the inputs and of the outputs
    if (norm.inputs[0] != sum || norm.inputs[residual] >= 0 || norm.phase != add.phase) return false;
    norm.inputs[0] = add.inputs[0];
    norm.inputs[residual] = add.inputs[1];
    norm.outputs[kept_sum] = sum;
    producer_[program_.root(sum)] = reader->second;
    return true;
  }

  StepProgram& program_;
  std::vector<bool> removed_;
  std::unordered_map<int, std::size_t> producer_, first_use_;  // root buffer -> instruction
  std::unordered_map<int, int> uses_;
};

}  // namespace

void fuse(StepProgram& program) { Fusion(program).run(); }

}  // namespace heddle
