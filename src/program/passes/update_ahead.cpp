#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "program/passes/operands.h"
#include "program/passes/passes.h"

namespace heddle {
namespace {

class UpdateAhead {
 public:
  UpdateAhead(StepProgram& step, const StepProgram& update)
      : step_(step), update_(update), buffers_(update.buffers.size(), -1) {
    for (int i = 0; i < count(step_); ++i) {
      for_each_operand(step_.instructions[at(i)], [&](int operand) { first_use_.try_emplace(step_.root(operand), i); });
    }
  }

  void run() {
    std::vector<Instruction> instructions = update_.instructions;
    for (Instruction& instruction : instructions) {
      for (auto* operands : {&instruction.inputs, &instruction.outputs}) {
        for (int& operand : *operands) operand = operand < 0 ? operand : taken_over(operand);
      }
    }
    std::vector<Instruction> merged;
    const std::vector<int> positions = positions_of(instructions);
    std::size_t next = 0;
    for (int i = 0; i < count(step_); ++i) {
      Instruction& instruction = step_.instructions[at(i)];
      for (; next < instructions.size() && positions[next] == i; ++next) {
        merged.push_back(std::move(instructions[next]));
        merged.back().unit = instruction.unit;
      }
      merged.push_back(std::move(instruction));
    }
    step_.instructions = std::move(merged);
  }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  static int count(const StepProgram& program) { return static_cast<int>(program.instructions.size()); }

  /// The step's own buffer where it has one of that label, else a new one.
  int taken_over(int id) {
    if (buffers_[at(id)] >= 0) return buffers_[at(id)];
    Buffer made = update_.at(id);
    const int known = made.is_persistent && made.view_of < 0 ? step_.find_persistent(made.label) : -1;
    if (known >= 0 && step_.at(known).type.shape == made.type.shape) return buffers_[at(id)] = known;
    if (known >= 0) made.view_of = step_.root(known);
    if (known < 0 && made.view_of >= 0) made.view_of = step_.root(taken_over(made.view_of));
    return buffers_[at(id)] = step_.add(std::move(made));
  }

  /// Where the step first names something that the instruction writes.
  int deadline(const Instruction& instruction) const {
    int first = std::numeric_limits<int>::max();
    for (const int output : instruction.outputs) {
      const auto found = output < 0 ? first_use_.end() : first_use_.find(step_.root(output));
      const bool is_weight =
          found != first_use_.end() && step_.at(found->first).buffer_class == BufferClass::parameters;
      if (is_weight) first = std::min(first, found->second);
    }
    return first;
  }

  /// Before which of the step's instructions each comes: in order, no later than what is written is needed, and evenly
  /// between that and what came before it. What is left to wait for comes where the backward begins.
  std::vector<int> positions_of(const std::vector<Instruction>& instructions) const {
    const auto is_backward = [](const Instruction& instruction) { return instruction.phase != Phase::forward; };
    const auto end =
        static_cast<int>(std::ranges::find_if(step_.instructions, is_backward) - step_.instructions.begin());
    std::vector<int> positions(instructions.size());
    int latest = end;
    for (std::size_t i = instructions.size(); i-- > 0;)
      positions[i] = latest = std::min(latest, deadline(instructions[i]));
    int start = 0;
    for (std::size_t first = 0; first < positions.size();) {
      std::size_t behind = first;
      const int due = positions[first];
      while (behind < positions.size() && positions[behind] == due) ++behind;
      const auto group = static_cast<int>(behind - first);
      for (int k = 0; k < group; ++k) positions[first + at(k)] = start + (due - start) * (k + 1) / group;
      start = due;
      first = behind;
    }
    return positions;
  }

  StepProgram& step_;
  const StepProgram& update_;
  std::vector<int> buffers_;                // of the update in the step
  std::unordered_map<int, int> first_use_;  // of the step's roots
};

}  // namespace

void update_ahead(StepProgram& step, const StepProgram& update) { UpdateAhead(step, update).run(); }

}  // namespace heddle
