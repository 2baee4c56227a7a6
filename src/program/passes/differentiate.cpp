#include <algorithm>

#include "base/error.h"
#include "program/passes/passes.h"

namespace heddle {
namespace {

/// Gradients by root buffer, while the backward is written. A view's gradient is a view of its root's gradient.
class Differentiation final : public BackwardContext {
 public:
  explicit Differentiation(StepProgram& program) : program_(program), gradients_(program.buffers.size(), -1) {}

  void run() {
    const std::size_t forward_count = program_.instructions.size();
    std::vector<std::size_t> replaced;
    for (std::size_t i = forward_count; i-- > 0;) {
      if (!leads_to_loss(program_.instructions[i])) continue;
      current_ = i;
      program_.instructions[i].operation->backward(*this);
      if (program_.instructions[i].operation->backward_replaces_forward) replaced.push_back(i);
    }
    for (const std::size_t index : replaced) {
      program_.instructions.erase(program_.instructions.begin() + static_cast<std::ptrdiff_t>(index));
    }
  }

  Value input(int index) const override { return {operand(instruction().inputs, index)}; }
  Value output(int index) const override { return {operand(instruction().outputs, index)}; }
  const Attributes& attributes() const override { return instruction().attributes; }
  Value output_gradient(int index) const override { return gradient_of(output(index)); }
  bool needs_gradient(int index) const override {
    const Value value = input(index);
    return value.present() && program_.at(value.id).needs_gradient;
  }
  Value gradient(int index) const override { return gradient_of(input(index)); }

  void set_gradient(int index, Value gradient) override {
    if (!needs_gradient(index)) return;
    const int root = program_.root(input(index).id);
    const int viewed = program_.view(gradient.id, program_.at(root).type.shape);
    grow();
    gradients_[static_cast<std::size_t>(root)] = viewed;
  }

  Value weight_gradient(int index) override {
    if (!needs_gradient(index)) return {};
    const Buffer& weight = program_.at(input(index).id);
    HEDDLE_CHECK(weight.is_persistent && weight.buffer_class == BufferClass::parameters);
    const std::string label = gradient_label(weight.label);
    if (const int found = program_.find_persistent(label); found >= 0) return {found};
    return {program_.add({.label = label,
                          .type = {DType::f32, weight.type.shape},
                          .buffer_class = BufferClass::gradients,
                          .is_persistent = true})};
  }

  std::vector<Value> emit(std::string_view operation, std::vector<Value> inputs, Attributes attributes,
                          std::vector<Value> given) override {
    std::vector<int> in, out;
    for (const Value value : inputs) in.push_back(value.id);
    for (const Value value : given) out.push_back(value.id);
    std::vector<Value> results;
    for (const int id : append_instruction(program_, find_operation(operation), std::move(in), std::move(attributes),
                                           out, instruction().unit, Phase::backward)) {
      results.push_back({id});
    }
    program_.instructions.back().in_mlp = instruction().in_mlp;
    return results;
  }

 private:
  static int operand(const std::vector<int>& operands, int index) {
    return static_cast<std::size_t>(index) < operands.size() ? operands[static_cast<std::size_t>(index)] : -1;
  }
  const Instruction& instruction() const { return program_.instructions[current_]; }
  void grow() { gradients_.resize(program_.buffers.size(), -1); }

  Value gradient_of(Value value) const {
    if (!value.present()) return {};
    const auto root = static_cast<std::size_t>(program_.root(value.id));
    if (root >= gradients_.size() || gradients_[root] < 0) return {};
    return {program_.view(gradients_[root], program_.at(value.id).type.shape)};
  }

  /// Whether a gradient arrives at the instruction and something trainable lies behind it.
  bool leads_to_loss(const Instruction& instruction) const {
    const Operation& operation = *instruction.operation;
    if (operation.backward == nullptr) return false;
    const bool trainable = std::any_of(instruction.inputs.begin(), instruction.inputs.end(),
                                       [&](int in) { return in >= 0 && program_.at(in).needs_gradient; });
    const bool reached =
        operation.backward_replaces_forward || std::any_of(instruction.outputs.begin(), instruction.outputs.end(),
                                                           [&](int out) { return gradient_of({out}).present(); });
    return trainable && reached;
  }

  StepProgram& program_;
  std::vector<int> gradients_;  // by root; -1: none yet
  std::size_t current_ = 0;
};

}  // namespace

void differentiate(StepProgram& program) { Differentiation(program).run(); }

}  // namespace heddle
