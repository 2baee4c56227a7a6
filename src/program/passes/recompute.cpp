#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "program/passes/passes.h"

namespace heddle {
namespace {

/// Which instructions may be emitted again, and from what: an instruction that may not be keeps its outputs alive.
class Recomputation {
 public:
  Recomputation(StepProgram& program, std::span<const RecomputeMode> mode_of_unit, bool rebuilds_mlp)
      : program_(program), mode_of_unit_(mode_of_unit), rebuilds_mlp_(rebuilds_mlp) {}

  void run() {
    for (std::size_t i = 0; i < program_.instructions.size(); ++i) {
      const auto& instruction = program_.instructions[i];
      const bool is_forward = instruction.phase == Phase::forward;
      for (const int operand : is_forward ? instruction.outputs : instruction.inputs) {
        if (operand < 0) continue;
        if (is_forward) {
          producer_[program_.root(operand)] = i;
        } else {
          read_by_backward_.insert(program_.root(operand));
        }
      }
    }
    std::vector<Instruction> before = std::move(program_.instructions);
    program_.instructions.clear();
    forward_ = before;
    find_repeatable();
    for (auto& instruction : before) {
      if (instruction.phase == Phase::backward) {
        for (int& input : instruction.inputs) {
          if (input >= 0) input = rebuilt(input, instruction.unit, rebuilds_mlp_ && instruction.in_mlp);
        }
      }
      program_.instructions.push_back(std::move(instruction));
    }
  }

 private:
  RecomputeMode mode_of(const Instruction& instruction) const {
    return mode_of_unit_[static_cast<std::size_t>(instruction.unit)];
  }

  bool is_whole_block(const Instruction& instruction) const {
    return mode_of(instruction) == RecomputeMode::full &&
           program_.units[static_cast<std::size_t>(instruction.unit)].starts_with("block");
  }

  /// An operation is worth repeating where the mode says so and what it reads is there in the backward in any case:
  /// else its inputs would be kept in place of its outputs.
  void find_repeatable() {
    repeatable_.assign(forward_.size(), false);
    for (std::size_t i = 0; i < forward_.size(); ++i) {
      const Instruction& instruction = forward_[i];
      if (instruction.phase != Phase::forward) continue;
      const auto degree = mode_of(instruction) == RecomputeMode::none ? Recomputed::always : Recomputed::selective;
      repeatable_[i] = is_whole_block(instruction) || (instruction.operation->recomputed <= degree &&
                                                       std::all_of(instruction.inputs.begin(), instruction.inputs.end(),
                                                                   [&](int in) { return is_there(in); }));
    }
  }

  bool is_there(int input) const {
    if (input < 0 || program_.at(program_.root(input)).is_persistent) return true;
    const int root = program_.root(input);
    const auto made_by = producer_.find(root);
    return read_by_backward_.contains(root) || (made_by != producer_.end() && repeatable_[made_by->second]);
  }

  /// The buffer to use in the backward instead of `buffer`: a recomputed copy, emitted now if there is none yet. What
  /// the backward of an MLP needs of its inside is made for it alone, so that tile_mlp() finds both together.
  int rebuilt(int buffer, int unit, bool for_mlp) {
    const int root = program_.root(buffer);
    const auto made_by = producer_.find(root);
    if (made_by == producer_.end() || program_.at(root).is_persistent) return buffer;
    const Instruction& original = forward_[made_by->second];
    // What comes from another unit is a checkpoint.
    const bool is_inside = for_mlp && original.in_mlp;
    if (original.unit != unit || !(is_inside || repeatable_[made_by->second])) return buffer;
    auto& copies = is_inside ? copies_in_mlp_ : copies_;
    if (!copies.contains(root)) {
      Instruction again = original;
      again.phase = Phase::recompute;
      for (int& input : again.inputs) {
        if (input >= 0) input = rebuilt(input, unit, is_inside);
      }
      for (int& output : again.outputs) {
        if (output < 0) continue;
        const int output_root = program_.root(output);
        Buffer copy = program_.at(output_root);
        copy.label += " again";
        const int id = program_.add(std::move(copy));
        copies.emplace(output_root, id);
        output = program_.view(id, program_.at(output).type.shape);
      }
      program_.instructions.push_back(std::move(again));
    }
    return program_.view(copies.at(root), program_.at(buffer).type.shape);
  }

  StepProgram& program_;
  std::span<const RecomputeMode> mode_of_unit_;
  const bool rebuilds_mlp_;
  std::vector<Instruction> forward_;               // as it was, to copy from
  std::unordered_map<int, std::size_t> producer_;  // root buffer -> index in forward_
  std::unordered_set<int> read_by_backward_;       // root buffers
  std::vector<bool> repeatable_;                   // by index in forward_
  std::unordered_map<int, int> copies_;            // root buffer -> recomputed root
  std::unordered_map<int, int> copies_in_mlp_;     // the same, for the backward of an MLP
};

}  // namespace

void recompute(StepProgram& program, RecomputeMode mode, bool rebuilds_mlp) {
  recompute(program, std::vector<RecomputeMode>(program.units.size(), mode), rebuilds_mlp);
}

void recompute(StepProgram& program, std::span<const RecomputeMode> mode_of_unit, bool rebuilds_mlp) {
  HEDDLE_CHECK(mode_of_unit.size() == program.units.size());
  Recomputation(program, mode_of_unit, rebuilds_mlp).run();
  remove_dead_instructions(program);
}

void remove_dead_instructions(StepProgram& program) {
  std::unordered_set<int> used;
  std::vector<bool> keep(program.instructions.size(), false);
  for (std::size_t i = program.instructions.size(); i-- > 0;) {
    const auto& instruction = program.instructions[i];
    keep[i] = std::any_of(instruction.outputs.begin(), instruction.outputs.end(), [&](int output) {
      return output >= 0 && (program.at(program.root(output)).is_persistent || used.contains(program.root(output)));
    });
    if (!keep[i]) continue;
    for (const int input : instruction.inputs) {
      if (input >= 0) used.insert(program.root(input));
    }
  }
  std::vector<Instruction> kept;
  for (std::size_t i = 0; i < keep.size(); ++i) {
    if (keep[i]) kept.push_back(std::move(program.instructions[i]));
  }
  program.instructions = std::move(kept);
}

}  // namespace heddle
