#include "planner/instruction_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

namespace heddle {
namespace {

std::vector<ValueType> types_of(const StepProgram& program, const std::vector<int>& operands, std::int64_t tokens) {
  std::vector<ValueType> types;
  types.reserve(operands.size());
  for (const int operand : operands) {
    types.push_back(operand < 0 ? ValueType{} : program.at(operand).type_of(tokens));
  }
  return types;
}

double flops_of(const StepProgram& program, const Instruction& instruction, const StreamSizes& sizes) {
  const auto count = [&](std::int64_t tokens) {
    return instruction.operation->flops(types_of(program, instruction.inputs, tokens),
                                        types_of(program, instruction.outputs, tokens), instruction.attributes);
  };
  const auto has_tokens = [&](const std::vector<int>& operands) {
    return std::ranges::any_of(operands, [&](int id) { return id >= 0 && program.at(id).type.token_axis >= 0; });
  };
  if (!has_tokens(instruction.inputs) && !has_tokens(instruction.outputs)) return count(0);
  // The losses skip rows without a target.
  if (instruction.operation->name.starts_with("linear_cross_entropy")) return count(sizes.supervised_tokens);
  if (instruction.in_mlp) return count(sizes.tokens());  // a tile's tokens may be of any document
  double flops = 0;
  std::map<std::int64_t, std::int64_t> lengths;
  for (const std::int64_t document : sizes.documents) ++lengths[document];
  for (const auto& [length, documents] : lengths) flops += static_cast<double>(documents) * count(length);
  return flops;
}

/// The root in whose memory a buffer lies.
int storage_of(const StepProgram& program, int buffer) {
  const int root = program.root(buffer), storage = program.at(root).storage;
  return storage < 0 ? root : storage;
}

MemoryTraffic traffic_of(const StepProgram& program, const Instruction& instruction, const StreamSizes& sizes) {
  const std::string_view name = instruction.operation->name;
  const auto bytes_of = [&](int id) { return static_cast<double>(program.at(id).type_of(sizes.tokens()).bytes()); };
  const auto mode = static_cast<Accumulate>(instruction.attributes.integer("accumulate"));
  const bool adds = mode == Accumulate::add || (mode == Accumulate::add_after_first && !sizes.is_first_micro_batch);
  MemoryTraffic traffic;
  for (const int id : instruction.inputs) {
    if (id < 0) continue;
    const bool is_table = name == "embedding" && id == instruction.inputs[1];
    traffic.read += is_table ? bytes_of(instruction.outputs[0]) : bytes_of(id);
  }
  for (const int id : instruction.outputs) {
    if (id < 0 || program.at(id).buffer_class == BufferClass::workspace) continue;
    const double bytes = bytes_of(id);
    if (name == "embedding_backward") {  // rows are added to; before that, the whole is cleared
      const auto rows = program.at(instruction.inputs[1]).type_of(sizes.tokens()).shape.elements();
      traffic.updated += 2.0 * sizeof(float) * static_cast<double>(rows);
      if (!adds) traffic.written += bytes;
    } else if (instruction.phase == Phase::update || (adds && program.at(id).buffer_class == BufferClass::gradients)) {
      traffic.updated += 2 * bytes;
    } else if (std::ranges::any_of(instruction.inputs, [&](int input) {
                 return input >= 0 && storage_of(program, input) == storage_of(program, id) && bytes_of(input) == bytes;
               })) {
      traffic.read -= bytes;
      traffic.updated += 2 * bytes;
    } else {
      traffic.written += bytes;
    }
  }
  return traffic;
}

std::string shapes_of(const StepProgram& program, const Instruction& instruction) {
  std::string text;
  const auto append = [&](const std::vector<int>& operands) {
    // Vectors and scalars beside a matrix say nothing more about it.
    const auto rank = [&](int id) {
      return id < 0 || program.at(id).buffer_class == BufferClass::workspace ? 0 : program.at(id).type.shape.rank();
    };
    int most = 0;
    for (const int id : operands) most = std::max(most, rank(id));
    std::string last;
    int times = 0;
    const auto flush = [&] {
      if (times > 0)
        text += fmt::format("{}{}{}", text.empty() ? "" : " ", last, times > 1 ? fmt::format("x{}", times) : "");
    };
    for (const int id : operands) {
      if (most == 0 || rank(id) < std::min(most, 2)) continue;
      const std::string shape = program.at(id).type.shape.text();
      if (shape == last) {
        ++times;
        continue;
      }
      flush();
      last = shape;
      times = 1;
    }
    flush();
  };
  append(instruction.inputs);
  const std::string inputs = std::exchange(text, "");
  append(instruction.outputs);
  return text.empty() ? inputs : inputs.empty() ? text : inputs + " -> " + text;
}

/// Attention multiplies in fp32 whatever its operands are.
bool multiplies_bf16(const StepProgram& program, const Instruction& instruction) {
  return instruction.operation->name.starts_with("linear") &&
         program.at(instruction.inputs.front()).type.dtype == DType::bf16;
}

void add_work(Work& sum, const Work& work) {
  sum.in_bf16 = work.in_bf16;
  sum.flops += work.flops;
  sum.bytes.read += work.bytes.read;
  sum.bytes.written += work.bytes.written;
  sum.bytes.updated += work.bytes.updated;
}

}  // namespace

std::int64_t StreamSizes::tokens() const {
  return std::accumulate(documents.begin(), documents.end(), std::int64_t{0});
}

Work work_of(const StepProgram& program, const Instruction& instruction, const StreamSizes& sizes) {
  if (instruction.operation->moves_data) return {};
  return {flops_of(program, instruction, sizes), multiplies_bf16(program, instruction),
          traffic_of(program, instruction, sizes)};
}

InstructionGroup InstructionTable::total() const {
  InstructionGroup sum;
  sum.operation = "total";
  for (const auto& group : groups) {
    sum.calls += group.calls;
    sum.seconds += group.seconds;
    sum.ceiling_seconds += group.ceiling_seconds;
    add_work(sum.work, group.work);
  }
  return sum;
}

InstructionTable make_instruction_table(std::span<const ProgramRuns> runs, const ThreadCeilings& ceilings, int steps) {
  InstructionTable table;
  table.ceilings = ceilings;
  table.steps = steps;
  std::map<std::tuple<Phase, std::string_view, std::string>, InstructionGroup> groups;
  for (const auto& run : runs) {
    for (std::size_t i = 0; i < run.program->instructions.size(); ++i) {
      const Instruction& instruction = run.program->instructions[i];
      std::string shapes = shapes_of(*run.program, instruction);
      InstructionGroup& group = groups[{instruction.phase, instruction.operation->name, shapes}];
      group.phase = instruction.phase;
      group.operation = instruction.operation->name;
      group.shapes = std::move(shapes);
      group.calls += static_cast<double>(run.executions.size()) / steps;
      group.seconds += run.seconds[i] / steps;
      for (const StreamSizes& sizes : run.executions) {
        Work work = work_of(*run.program, instruction, sizes);
        work.flops /= steps;
        work.bytes.read /= steps;
        work.bytes.written /= steps;
        work.bytes.updated /= steps;
        add_work(group.work, work);
      }
    }
  }
  for (auto& [key, group] : groups) {
    const double compute = ceilings.compute_seconds(group.work.flops, group.work.in_bf16);
    const double memory = ceilings.memory_seconds(group.work.bytes);
    group.is_compute_bound = compute > memory;
    group.ceiling_seconds = std::max(compute, memory);
    table.groups.push_back(std::move(group));
  }
  std::ranges::stable_sort(table.groups, std::greater<>(), &InstructionGroup::seconds);
  return table;
}

}  // namespace heddle
