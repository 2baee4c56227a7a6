#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "program/passes/passes.h"

namespace heddle {
namespace {

constexpr std::uint64_t kAlignment = 64;  // a cache line, and the widest vector

std::uint64_t aligned(std::uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

template <typename Function>
void for_each_operand(const Instruction& instruction, Function&& function) {
  for (const int input : instruction.inputs) {
    if (input >= 0) function(input);
  }
  for (const int output : instruction.outputs) {
    if (output >= 0) function(output);
  }
}

void find_lifetimes(StepProgram& program) {
  for (auto& buffer : program.buffers) buffer.first_use = buffer.last_use = buffer.storage = -1;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    for_each_operand(program.instructions[static_cast<std::size_t>(i)], [&](int operand) {
      Buffer& buffer = program.at(program.root(operand));
      if (buffer.first_use < 0) buffer.first_use = i;
      buffer.last_use = i;
    });
  }
}

/// Whether the output may lie where the input lies: nothing needs the input afterwards, and no other operand of the
/// instruction is there.
bool can_take_over(const StepProgram& program, const Instruction& instruction, int index, int output, int input) {
  const Buffer& target = program.at(output);
  const Buffer& source = program.at(input);
  if (target.is_persistent || source.is_persistent || target.storage != output || target.first_use != index)
    return false;
  if (source.buffer_class == BufferClass::data || target.bytes() != source.bytes()) return false;
  const int storage = source.storage;
  if (program.at(storage).last_use != index || program.at(storage).bytes() != target.bytes()) return false;
  int uses = 0;
  for_each_operand(instruction,
                   [&](int operand) { uses += program.at(program.root(operand)).storage == storage ? 1 : 0; });
  return uses == 1;
}

void compute_in_place(StepProgram& program) {
  for (int id = 0; id < static_cast<int>(program.buffers.size()); ++id) program.at(id).storage = id;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const auto& instruction = program.instructions[static_cast<std::size_t>(i)];
    for (const auto& [output_index, input_index] : instruction.operation->in_place) {
      const auto o = static_cast<std::size_t>(output_index), n = static_cast<std::size_t>(input_index);
      if (o >= instruction.outputs.size() || n >= instruction.inputs.size()) continue;
      if (instruction.outputs[o] < 0 || instruction.inputs[n] < 0) continue;
      const int output = program.root(instruction.outputs[o]), input = program.root(instruction.inputs[n]);
      if (!can_take_over(program, instruction, i, output, input)) continue;
      const int storage = program.at(input).storage;
      program.at(output).storage = storage;
      program.at(storage).last_use = std::max(program.at(storage).last_use, program.at(output).last_use);
    }
  }
}

std::vector<int> transient_storages(const StepProgram& program) {
  std::vector<int> storages;
  for (int id = 0; id < static_cast<int>(program.buffers.size()); ++id) {
    const Buffer& buffer = program.at(id);
    if (buffer.view_of < 0 && !buffer.is_persistent && buffer.storage == id && buffer.first_use >= 0)
      storages.push_back(id);
  }
  return storages;
}

/// Returns the bytes that the transient buffers need, from offset 0.
std::uint64_t place_transients(StepProgram& program) {
  auto order = transient_storages(program);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return program.at(a).bytes() > program.at(b).bytes(); });
  struct Placed {
    std::uint64_t begin, end;
    int first, last;
  };
  std::vector<Placed> placed;  // sorted by begin
  std::uint64_t top = 0;
  for (const int id : order) {
    Buffer& buffer = program.at(id);
    const std::uint64_t size = aligned(static_cast<std::uint64_t>(buffer.bytes()));
    std::uint64_t offset = 0;
    for (const auto& other : placed) {
      if (other.first > buffer.last_use || other.last < buffer.first_use) continue;
      if (other.begin >= offset + size) break;
      offset = std::max(offset, other.end);
    }
    buffer.offset = static_cast<std::int64_t>(offset);
    const Placed made{offset, offset + size, buffer.first_use, buffer.last_use};
    placed.insert(std::upper_bound(placed.begin(), placed.end(), made,
                                   [](const Placed& a, const Placed& b) { return a.begin < b.begin; }),
                  made);
    top = std::max(top, offset + size);
  }
  return top;
}

using ByClass = std::array<std::uint64_t, kBufferClasses>;

std::uint64_t sum(const ByClass& bytes) { return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}); }

/// Follows the live bytes through a program; `persistent` are always live.
void add_to_bill(const StepProgram& program, const ByClass& persistent, Bill& bill, std::uint64_t& most) {
  const auto storages = transient_storages(program);
  std::vector<std::vector<int>> begin(program.instructions.size()), end(program.instructions.size());
  for (const int id : storages) {
    begin[static_cast<std::size_t>(program.at(id).first_use)].push_back(id);
    end[static_cast<std::size_t>(program.at(id).last_use)].push_back(id);
  }
  ByClass live = persistent;
  const auto bytes_of = [&](int id) -> std::uint64_t& {
    return live[static_cast<std::size_t>(program.at(id).buffer_class)];
  };
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    for (const int id : begin[i]) bytes_of(id) += static_cast<std::uint64_t>(program.at(id).bytes());
    for (std::size_t c = 0; c < kBufferClasses; ++c) bill.greatest[c] = std::max(bill.greatest[c], live[c]);
    if (sum(live) > most) {
      most = sum(live);
      bill.at_peak = live;
    }
    for (const int id : end[i]) bytes_of(id) -= static_cast<std::uint64_t>(program.at(id).bytes());
  }
}

}  // namespace

MemoryPlan allocate(const std::vector<StepProgram*>& programs, std::uint64_t scratch_bytes) {
  MemoryPlan plan;
  ByClass persistent{};
  std::unordered_map<std::string, std::int64_t> bytes_of, offsets;
  std::uint64_t top = 0;
  for (const auto* program : programs) {  // a label may have a greater capacity in one program than in another
    for (const auto& buffer : program->buffers) {
      if (buffer.is_persistent && buffer.view_of < 0)
        bytes_of[buffer.label] = std::max(bytes_of[buffer.label], buffer.bytes());
    }
  }
  for (auto* program : programs) {
    for (auto& buffer : program->buffers) {
      if (!buffer.is_persistent || buffer.view_of >= 0) continue;
      const auto [found, is_new] = offsets.try_emplace(buffer.label, static_cast<std::int64_t>(top));
      buffer.offset = found->second;
      if (!is_new) continue;
      const auto bytes = static_cast<std::uint64_t>(bytes_of[buffer.label]);
      persistent[static_cast<std::size_t>(buffer.buffer_class)] += bytes;
      top += aligned(bytes);
    }
  }
  plan.scratch_offset = top;
  plan.scratch_bytes = scratch_bytes;
  persistent[static_cast<std::size_t>(BufferClass::workspace)] += scratch_bytes;
  top += aligned(scratch_bytes);
  plan.persistent_bytes = top;

  std::uint64_t transient = 0, most = sum(persistent);
  plan.device.at_peak = plan.device.greatest = persistent;
  for (auto* program : programs) {
    find_lifetimes(*program);
    compute_in_place(*program);
    transient = std::max(transient, place_transients(*program));
    for (auto& buffer : program->buffers) {
      if (buffer.is_persistent || buffer.view_of >= 0 || buffer.storage < 0 ||
          program->at(buffer.storage).first_use < 0)
        continue;
      if (&buffer == &program->at(buffer.storage)) buffer.offset += static_cast<std::int64_t>(plan.persistent_bytes);
    }
    for (auto& buffer : program->buffers) {
      if (!buffer.is_persistent && buffer.view_of < 0 && buffer.storage >= 0)
        buffer.offset = program->at(buffer.storage).offset;
    }
    for (auto& buffer : program->buffers) {
      if (buffer.view_of >= 0) buffer.offset = program->at(buffer.view_of).offset + buffer.view_offset;
    }
    add_to_bill(*program, persistent, plan.device, most);
  }
  plan.device.peak = plan.persistent_bytes + transient;
  // Alignment and what the lifetimes leave unfilled are memory that the run holds all the same.
  auto& workspace = plan.device.at_peak[static_cast<std::size_t>(BufferClass::workspace)];
  workspace += plan.device.peak - sum(plan.device.at_peak);
  auto& greatest = plan.device.greatest[static_cast<std::size_t>(BufferClass::workspace)];
  greatest = std::max(greatest, workspace);
  return plan;
}

}  // namespace heddle
