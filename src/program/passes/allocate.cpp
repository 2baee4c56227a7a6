#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "base/error.h"
#include "program/passes/operands.h"
#include "program/passes/passes.h"

namespace heddle {
namespace {

/// A cache line, and the widest vector.
constexpr std::int64_t kLine = 64;

std::uint64_t aligned(std::uint64_t bytes, std::int64_t alignment) {
  const auto step = static_cast<std::uint64_t>(alignment);
  return (bytes + step - 1) / step * step;
}

std::int64_t alignment_of(Tier tier) { return tier == Tier::device ? kLine : kPageBytes; }

/// Operands of movements live until these are waited for. A queue works in order: what is waited for, and all before it
/// on its queue, is done.
class UnfinishedMovements {
 public:
  explicit UnfinishedMovements(StepProgram& program) : program_(program) {}

  void start(int index) {
    unfinished_.push_back(index);
    for_each_operand(instruction(index), [&](int operand) { last_movement_[program_.root(operand)] = index; });
  }

  /// At a `wait`, which is for the last movement that has one of its operands.
  void finish(int wait) {
    int done = -1;
    for_each_operand(instruction(wait), [&](int operand) {
      const auto found = last_movement_.find(program_.root(operand));
      if (found != last_movement_.end()) done = std::max(done, found->second);
    });
    HEDDLE_CHECK(done >= 0);
    std::erase_if(unfinished_, [&](int movement) {
      if (movement > done || instruction(movement).queue != instruction(done).queue) return false;
      for_each_operand(instruction(movement), [&](int operand) {
        int& last_use = program_.at(program_.root(operand)).last_use;
        last_use = std::max(last_use, wait);
      });
      return true;
    });
  }

  bool empty() const { return unfinished_.empty(); }

 private:
  const Instruction& instruction(int index) const { return program_.instructions[static_cast<std::size_t>(index)]; }
  StepProgram& program_;
  std::vector<int> unfinished_;
  std::unordered_map<int, int> last_movement_;  // by root
};

void find_lifetimes(StepProgram& program) {
  for (auto& buffer : program.buffers) buffer.first_use = buffer.last_use = buffer.storage = -1;
  UnfinishedMovements movements(program);
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    const auto& instruction = program.instructions[static_cast<std::size_t>(i)];
    for_each_operand(instruction, [&](int operand) {
      Buffer& buffer = program.at(program.root(operand));
      if (buffer.first_use < 0) buffer.first_use = i;
      buffer.last_use = i;
    });
    if (!instruction.operation->moves_data) continue;
    if (instruction.operation->name == "wait") {
      movements.finish(i);
    } else {
      movements.start(i);
    }
  }
  HEDDLE_CHECK(movements.empty());
}

/// Whether the instruction makes a gradient anew, whatever was there.
bool overwrites_gradient(const StepProgram& program, const Instruction& instruction, int root) {
  const auto is_it = [&](int operand) { return operand >= 0 && program.root(operand) == root; };
  if (std::any_of(instruction.inputs.begin(), instruction.inputs.end(), is_it)) return false;
  const auto written = std::find_if(instruction.outputs.begin(), instruction.outputs.end(), is_it);
  return program.at(*written).bytes() == program.at(root).bytes() &&
         instruction.attributes.integer("accumulate", -1) == static_cast<std::int64_t>(Accumulate::overwrite);
}

/// Gradients that the first program naming them overwrites before it reads them live from there on, to the end of that
/// program, and in the others that name them from where these overwrite them, or else throughout.
void find_carried(const std::vector<StepProgram*>& programs) {
  std::unordered_map<std::string, bool> carried;
  for (auto* program : programs) {
    for (int id = 0; id < static_cast<int>(program->buffers.size()); ++id) {
      Buffer& buffer = program->at(id);
      if (!buffer.is_persistent || buffer.view_of >= 0 || buffer.buffer_class != BufferClass::gradients) continue;
      const bool is_overwritten =
          buffer.first_use >= 0 &&
          overwrites_gradient(*program, program->instructions[static_cast<std::size_t>(buffer.first_use)], id);
      buffer.is_carried = carried.try_emplace(buffer.label, is_overwritten).first->second;
      if (!buffer.is_carried) continue;
      if (!is_overwritten) buffer.first_use = 0;
      buffer.last_use = static_cast<int>(program->instructions.size()) - 1;
    }
  }
}

/// Whether the output may lie where the input lies: nothing needs the input afterwards, and no other operand of the
/// instruction is there.
bool can_take_over(const StepProgram& program, const Instruction& instruction, int index, int output, int input) {
  const Buffer& target = program.at(output);
  const Buffer& source = program.at(input);
  if (target.is_persistent || source.is_persistent || target.storage != output || target.first_use != index)
    return false;
  if (target.tier != source.tier) return false;
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

/// Pages outside the device; and in it for what comes from the nvme tier or goes there.
void find_alignments(StepProgram& program) {
  for (auto& buffer : program.buffers) buffer.alignment = alignment_of(buffer.tier);
  for (const auto& instruction : program.instructions) {
    if (instruction.queue != Queue::transfer) continue;
    for (std::size_t i = 0; i < instruction.inputs.size(); ++i) {
      const int from = program.root(instruction.inputs[i]), to = program.root(instruction.outputs[i]);
      if (program.at(from).tier != Tier::nvme && program.at(to).tier != Tier::nvme) continue;
      for (const int moved : {from, to}) program.at(program.at(moved).storage).alignment = kPageBytes;
    }
  }
}

/// What lies in a tier's arena by lifetime: transient buffers and carried ones.
std::vector<int> timed_storages(const StepProgram& program, Tier tier) {
  std::vector<int> storages;
  for (int id = 0; id < static_cast<int>(program.buffers.size()); ++id) {
    const Buffer& buffer = program.at(id);
    if (buffer.tier == tier && buffer.view_of < 0 && buffer.is_timed() && buffer.storage == id && buffer.first_use >= 0)
      storages.push_back(id);
  }
  return storages;
}

/// A place in an arena that is taken from one instruction to another.
struct Placed {
  std::uint64_t begin, end;
  int first, last;
};

/// What is placed already, found by time: most buffers live for a few instructions of thousands.
class PlacedByTime {
 public:
  explicit PlacedByTime(std::size_t instructions) : buckets_(instructions / kBucket + 1) {}

  void add(const Placed& made) {
    for (int b = made.first / kBucket; b <= made.last / kBucket; ++b)
      buckets_[static_cast<std::size_t>(b)].push_back(made);
  }

  /// The lowest offset where `size` bytes are free throughout.
  std::uint64_t lowest_free(int first, int last, std::uint64_t size, std::int64_t alignment) {
    met_.clear();
    for (int b = first / kBucket; b <= last / kBucket; ++b) {
      for (const Placed& other : buckets_[static_cast<std::size_t>(b)]) {
        const bool is_met_here = b == std::max(first, other.first) / kBucket;  // of the buckets that it is in, one
        if (is_met_here && other.first <= last && other.last >= first) met_.push_back(other);
      }
    }
    std::ranges::sort(met_, {}, &Placed::begin);
    std::uint64_t offset = 0;
    for (const Placed& other : met_) {
      if (other.begin >= offset + size) break;
      offset = std::max(offset, aligned(other.end, alignment));
    }
    return offset;
  }

 private:
  static constexpr int kBucket = 32;  // instructions
  std::vector<std::vector<Placed>> buckets_;
  std::vector<Placed> met_;
};

/// Returns the bytes that the timed buffers need, from offset 0. Carried ones lie where an earlier program put them.
std::uint64_t place_timed(StepProgram& program, Tier tier, std::unordered_map<std::string, std::int64_t>& carried) {
  auto order = timed_storages(program, tier);
  const auto is_placed = [&](int id) { return program.at(id).is_carried && carried.contains(program.at(id).label); };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::pair(is_placed(a), program.at(a).bytes()) > std::pair(is_placed(b), program.at(b).bytes());
  });
  PlacedByTime placed(program.instructions.size());
  std::uint64_t top = 0;
  for (const int id : order) {
    Buffer& buffer = program.at(id);
    const std::uint64_t size = aligned(static_cast<std::uint64_t>(buffer.bytes()), buffer.alignment);
    const std::uint64_t offset = is_placed(id)
                                     ? static_cast<std::uint64_t>(carried.at(buffer.label))
                                     : placed.lowest_free(buffer.first_use, buffer.last_use, size, buffer.alignment);
    buffer.offset = static_cast<std::int64_t>(offset);
    placed.add({offset, offset + size, buffer.first_use, buffer.last_use});
    top = std::max(top, offset + size);
  }
  for (const int id : order) {
    if (program.at(id).is_carried) carried.emplace(program.at(id).label, program.at(id).offset);
  }
  return top;
}

using ByClass = std::array<std::uint64_t, kBufferClasses>;

std::uint64_t sum(const ByClass& bytes) { return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}); }

/// Follows the live bytes through a program; `persistent`, without what is carried, are always live.
void add_to_bill(const StepProgram& program, Tier tier, const ByClass& persistent, Bill& bill, std::uint64_t& most) {
  const auto storages = timed_storages(program, tier);
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

/// Places all buffers of one tier; `scratch_bytes` lie behind the persistent ones. Returns where.
std::uint64_t allocate_tier(const std::vector<StepProgram*>& programs, Tier tier, std::uint64_t scratch_bytes,
                            Bill& bill) {
  ByClass persistent{};
  std::unordered_map<std::string, std::int64_t> bytes_of, offsets;
  std::uint64_t top = 0;
  for (const auto* program : programs) {  // a label may have a greater capacity in one program than in another
    for (const auto& buffer : program->buffers) {
      if (buffer.tier == tier && buffer.is_persistent && buffer.view_of < 0)
        bytes_of[buffer.label] = std::max(bytes_of[buffer.label], buffer.bytes());
    }
  }
  for (auto* program : programs) {
    for (auto& buffer : program->buffers) {
      if (buffer.tier != tier || buffer.is_timed() || buffer.view_of >= 0) continue;
      const auto [found, is_new] = offsets.try_emplace(buffer.label, static_cast<std::int64_t>(top));
      buffer.offset = found->second;
      if (!is_new) continue;
      const auto bytes = static_cast<std::uint64_t>(bytes_of[buffer.label]);
      persistent[static_cast<std::size_t>(buffer.buffer_class)] += bytes;
      top += aligned(bytes, alignment_of(tier));
    }
  }
  const std::uint64_t scratch_offset = top;
  persistent[static_cast<std::size_t>(BufferClass::workspace)] += scratch_bytes;
  top += aligned(scratch_bytes, alignment_of(tier));
  for (const auto* program : programs) {  // what is timed lies behind, at multiples of its alignment
    for (const int id : timed_storages(*program, tier)) top = aligned(top, program->at(id).alignment);
  }

  std::uint64_t timed = 0, most = sum(persistent);
  std::unordered_map<std::string, std::int64_t> carried;  // offsets by label, from the end of the persistent bytes
  bill.at_peak = bill.greatest = persistent;
  for (auto* program : programs) {
    timed = std::max(timed, place_timed(*program, tier, carried));
    for (const int id : timed_storages(*program, tier)) program->at(id).offset += static_cast<std::int64_t>(top);
    add_to_bill(*program, tier, persistent, bill, most);
  }
  bill.peak = top + timed;
  // Alignment and what the lifetimes leave unfilled are memory that the run holds all the same.
  auto& workspace = bill.at_peak[static_cast<std::size_t>(BufferClass::workspace)];
  workspace += bill.peak - sum(bill.at_peak);
  auto& greatest = bill.greatest[static_cast<std::size_t>(BufferClass::workspace)];
  greatest = std::max(greatest, workspace);
  return scratch_offset;
}

}  // namespace

void MemoryPlan::add_staging(std::uint64_t bytes) {
  constexpr auto kCommunication = static_cast<std::size_t>(BufferClass::communication);
  staging_bytes += bytes;
  device.peak += bytes;
  device.at_peak[kCommunication] += bytes;
  device.greatest[kCommunication] += bytes;
}

MemoryPlan allocate(const std::vector<StepProgram*>& programs, std::uint64_t scratch_bytes) {
  MemoryPlan plan;
  for (auto* program : programs) find_lifetimes(*program);
  find_carried(programs);
  for (auto* program : programs) {
    compute_in_place(*program);
    find_alignments(*program);
  }
  plan.scratch_bytes = scratch_bytes;
  plan.scratch_offset = allocate_tier(programs, Tier::device, scratch_bytes, plan.device);
  allocate_tier(programs, Tier::host, 0, plan.host);
  allocate_tier(programs, Tier::nvme, 0, plan.nvme);
  for (auto* program : programs) {
    for (auto& buffer : program->buffers) {
      if (buffer.is_timed() && buffer.view_of < 0 && buffer.storage >= 0)
        buffer.offset = program->at(buffer.storage).offset;
    }
    for (auto& buffer : program->buffers) {
      if (buffer.view_of >= 0) buffer.offset = program->at(buffer.view_of).offset + buffer.view_offset;
    }
  }
  return plan;
}

}  // namespace heddle
