#include "planner/step_cost.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "planner/instruction_table.h"

namespace heddle {
namespace {

/// Bytes of operands by tier, each buffer once: what is updated in place is an input and an output.
struct TierBytes {
  double device = 0, host = 0, nvme = 0;
};

TierBytes bytes_of(const StepProgram& program, const std::vector<int>& operands) {
  TierBytes bytes;
  for (const int id : operands) {
    if (id < 0) continue;
    const auto size = static_cast<double>(program.at(id).bytes());
    switch (program.at(program.root(id)).tier) {
      case Tier::host: bytes.host += size; break;
      case Tier::nvme: bytes.nvme += size; break;
      default: bytes.device += size;
    }
  }
  return bytes;
}

/// When what runs on a program's queues is done. Each queue works in order; a movement starts once the compute queue
/// has come to it, and a `wait` holds that queue until it is done.
class Schedule {
 public:
  explicit Schedule(const StepProgram& program) : program_(program) {}

  void compute(double seconds) { now_ += seconds; }
  void move(const Instruction& movement, double seconds) {
    double& free = free_[static_cast<std::size_t>(movement.queue)];
    free = std::max(free, now_) + seconds;
    for (const auto* operands : {&movement.inputs, &movement.outputs}) {
      for (const int operand : *operands) done_[program_.root(operand)] = free;
    }
  }
  void wait(const Instruction& wait) {
    for (const int input : wait.inputs) now_ = std::max(now_, done_[program_.root(input)]);
  }
  double end() const { return std::max(now_, std::ranges::max(free_)); }

 private:
  const StepProgram& program_;
  double now_ = 0;
  std::array<double, 3> free_{};          // by queue
  std::unordered_map<int, double> done_;  // by root that is moved
};

class Roofline {
 public:
  Roofline(const CompiledRun& compiled, const Device& device) : compiled_(compiled), device_(device) {
    const bool is_half =
        compiled.activation_type == DType::f16 || (compiled.activation_type == DType::bf16 && device.has_bf16);
    flops_per_second_ = is_half ? device.half_flops : device.float_flops;
  }

  void add(const StepProgram& program, bool is_first, double times) {
    const StreamSizes sizes = full_stream(program, is_first);
    Schedule schedule(program);
    for (const Instruction& instruction : program.instructions) {
      if (instruction.operation->name == "wait") {
        schedule.wait(instruction);
      } else if (instruction.operation->moves_data) {
        schedule.move(instruction, move(program, instruction, times));
      } else {
        schedule.compute(compute(program, instruction, sizes, times));
      }
    }
    cost_.seconds += times * schedule.end();
  }

  const StepCost& cost() const { return cost_; }

 private:
  static StreamSizes full_stream(const StepProgram& program, bool is_first) {
    StreamSizes sizes;
    sizes.is_first_micro_batch = is_first;
    std::int64_t tokens = 0, documents = 1;
    for (const Buffer& buffer : program.buffers) {
      if (buffer.label == labels::input_ids) tokens = buffer.type.shape.elements();
      if (buffer.label == labels::document_starts)
        documents = std::max<std::int64_t>(1, buffer.type.shape.elements() - 1);
    }
    for (std::int64_t i = 0; i < documents; ++i)
      sizes.documents.push_back(tokens * (i + 1) / documents - tokens * i / documents);
    sizes.supervised_tokens = tokens;
    return sizes;
  }

  /// Counts what the instruction does so many times; returns the seconds of one.
  double compute(const StepProgram& program, const Instruction& instruction, const StreamSizes& sizes, double times) {
    const Work work = work_of(program, instruction, sizes);
    cost_.flops += times * work.flops;
    const TierBytes in = bytes_of(program, instruction.inputs), out = bytes_of(program, instruction.outputs);
    const double host = in.host + out.host, nvme = in.nvme + out.nvme;
    if (host + nvme == 0)
      return std::max(work.flops / flops_per_second_, work.bytes.total() / device_.memory_bandwidth);
    // Optimizers run where their states lie; what else names memory of another tier reaches over the link.
    const bool runs_on_host = instruction.phase == Phase::update;
    const double over_link = runs_on_host ? in.device + out.device : host;
    cost_.moved_bytes += times * (host + nvme + (runs_on_host ? over_link : 0));
    return over_link / device_.host_link + (runs_on_host ? host / device_.host_bandwidth : 0) +
           nvme / device_.nvme_bandwidth;
  }

  double move(const StepProgram& program, const Instruction& instruction, double times) {
    const std::string_view name = instruction.operation->name;
    const TierBytes in = bytes_of(program, instruction.inputs), out = bytes_of(program, instruction.outputs);
    const double read = in.device + in.host + in.nvme, written = out.device + out.host + out.nvme;
    double bytes = 0, rate = 1;
    if (name == "transfer") {
      bytes = std::max(read, written);
      rate = in.nvme + out.nvme > 0 ? device_.nvme_bandwidth : device_.host_link;
    } else if (name == "all_gather" || name == "reduce_scatter") {
      // A ring passes on all but a rank's own part (Patarasuk, Yuan 2009).
      const double ranks = compiled_.sharding.ranks;
      bytes = written * (ranks - 1) / (name == "all_gather" ? ranks : 1);
      rate = device_.peer_link;
    }
    cost_.moved_bytes += times * bytes;
    return bytes / rate;
  }

  const CompiledRun& compiled_;
  const Device& device_;
  double flops_per_second_ = 1;
  StepCost cost_;
};

}  // namespace

StepCost estimate_step(const CompiledRun& compiled, std::int64_t accumulation, const Device& device) {
  Roofline roofline(compiled, device);
  const auto& micro_batch = compiled.programs[static_cast<std::size_t>(compiled.micro_batch)];
  const bool has_update = compiled.micro_batch_with_update >= 0;
  roofline.add(has_update ? compiled.programs[static_cast<std::size_t>(compiled.micro_batch_with_update)] : micro_batch,
               true, 1);
  if (accumulation > 1) roofline.add(micro_batch, false, static_cast<double>(accumulation - 1));
  for (const int program : {compiled.norm, compiled.update})
    roofline.add(compiled.programs[static_cast<std::size_t>(program)], true, 1);
  return roofline.cost();
}

}  // namespace heddle
