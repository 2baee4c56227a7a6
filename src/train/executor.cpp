#include "train/executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <unordered_set>

#include "base/error.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

/// Room for the whole last page is at both ends of a transfer with the nvme tier: allocate() sees to it.
std::size_t whole_pages(std::size_t bytes) {
  constexpr auto kPage = static_cast<std::size_t>(kPageBytes);
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

Executor::Executor(const std::vector<const StepProgram*>& programs, const MemoryPlan& plan, KernelTable kernels,
                   int threads, Communicator* communicator, const std::filesystem::path& nvme_folder,
                   const TransferOptions& transfers)
    : device_(plan.device.peak - plan.staging_bytes, "device tier"),
      host_(plan.host.peak, "host tier"),
      swap_(nvme_folder, plan.nvme.peak),
      held_(programs, {device_.bytes(), host_.bytes(), swap_.bytes()}, plan.scratch_bytes,
            communicator == nullptr ? 0 : communicator->staging_bytes()) {
  scratch_.shared = device_.data() + plan.scratch_offset;
  scratch_.shared_bytes = plan.shared_scratch_bytes;
  scratch_.per_thread = scratch_.shared + scratch_.shared_bytes;
  scratch_.bytes_per_thread = kScratchBytesPerThread;
  scratch_.threads = threads;
  const std::size_t kernels_bytes = plan.scratch_bytes - plan.save_buffer_bytes;
  HEDDLE_CHECK(kernels_bytes >= scratch_.shared_bytes + static_cast<std::size_t>(threads) * kScratchBytesPerThread);
  save_buffers_ = plan.save_buffer_bytes > 0 ? std::span(scratch_.shared + kernels_bytes, plan.save_buffer_bytes)
                                             : std::span(scratch_.shared, kernels_bytes);
  for (const auto* program : programs) bound_.push_back(bind(*program, kernels));
  const auto uses = [&](Queue queue) {
    return std::any_of(bound_.begin(), bound_.end(), [&](const Bound& bound) {
      return std::any_of(bound.steps.begin(), bound.steps.end(),
                         [&](const Step& step) { return step.kernel == nullptr && step.queue == queue; });
    });
  };
  if (uses(Queue::communication)) {
    HEDDLE_CHECK(communicator != nullptr);
    communication_ = std::make_unique<MovementQueue>(make_collective_mover(*communicator));
  }
  if (uses(Queue::transfer)) transfer_ = std::make_unique<MovementQueue>(make_transfer_mover(swap_, transfers));
}

TensorView Executor::view_of(const Buffer& buffer) const {
  const auto [data, bytes] = buffer.tier == Tier::device ? std::pair(device_.data(), device_.bytes())
                             : buffer.tier == Tier::host ? std::pair(host_.data(), host_.bytes())
                                                         : std::pair(swap_.mapped(), swap_.bytes());
  HEDDLE_CHECK(buffer.offset >= 0 && static_cast<std::size_t>(buffer.offset + buffer.bytes()) <= bytes);
  return {data + buffer.offset, buffer.type.dtype, buffer.type.shape};
}

Executor::Bound Executor::bind(const StepProgram& program, KernelTable kernels) const {
  Bound bound;
  bound.program = &program;
  bound.seconds.resize(program.instructions.size());
  const auto append = [&](const std::vector<int>& operands) {
    const auto first = static_cast<std::uint32_t>(bound.views.size());
    for (const int operand : operands) {
      if (operand < 0) {
        bound.views.emplace_back();
        continue;
      }
      const Buffer& buffer = program.at(operand);
      HEDDLE_CHECK(buffer.tier != Tier::nvme);
      if (buffer.type.token_axis >= 0) {
        bound.token_views.emplace_back(static_cast<std::uint32_t>(bound.views.size()), operand);
        bound.capacity = std::max(bound.capacity, buffer.type.shape[buffer.type.token_axis]);
      }
      bound.views.push_back(view_of(buffer));
    }
    return first;
  };
  std::vector<int> last_movement(program.buffers.size(), -1);  // that has the root as an operand
  std::vector<Queue> queues;                                   // of movements
  for (const auto& instruction : program.instructions) {
    Step step{};
    step.movement = -1;
    if (!instruction.operation->moves_data) {
      step.kernel = kernels(instruction.operation->name);
      if (step.kernel == nullptr) fail("this backend has no kernel for {}", instruction.operation->name);
      for (const auto* operands : {&instruction.inputs, &instruction.outputs}) {
        for (const int operand : *operands) {
          if (operand >= 0) step.first_token = std::max(step.first_token, program.at(operand).first_token);
        }
      }
      step.first_input = append(instruction.inputs);
      step.inputs = static_cast<std::uint32_t>(instruction.inputs.size());
      step.first_output = append(instruction.outputs);
      step.outputs = static_cast<std::uint32_t>(instruction.outputs.size());
    } else if (instruction.operation->name == "wait") {
      step.is_waiting = true;
      for (const int input : instruction.inputs)
        step.movement = std::max(step.movement, last_movement[static_cast<std::size_t>(program.root(input))]);
      HEDDLE_CHECK(step.movement >= 0);
      step.queue = queues[static_cast<std::size_t>(step.movement)];
    } else {
      step.movement = static_cast<int>(bound.movements.size());
      step.queue = instruction.queue;
      queues.push_back(step.queue);
      for (const auto* operands : {&instruction.inputs, &instruction.outputs}) {
        for (const int operand : *operands)
          last_movement[static_cast<std::size_t>(program.root(operand))] = step.movement;
      }
      bound.movements.push_back(bind_movement(program, instruction));
    }
    bound.steps.push_back(step);
  }
  bound.tickets.resize(bound.movements.size());
  bind_coming(bound);
  return bound;
}

void Executor::bind_coming(Bound& bound) const {
  std::uint32_t first = 0;
  for (std::size_t i = bound.steps.size(); i-- > 0;) {
    const auto end = static_cast<std::uint32_t>(bound.weights.size());
    bound.steps[i].first_coming = first;
    bound.steps[i].coming = end - first;
    const Instruction& instruction = bound.program->instructions[i];
    const bool is_group = instruction.operation->name == "linear_group";
    if (!is_group && instruction.operation->name != "linear") continue;
    first = end;
    if (instruction.attributes.integer("transposed") != 0) continue;  // is packed, whatever its rows
    for (std::size_t weight = 1; weight < (is_group ? instruction.inputs.size() : 2); weight += 2) {
      bound.weights.push_back(view_of(bound.program->at(instruction.inputs[weight])));
    }
  }
}

BoundMovement Executor::bind_movement(const StepProgram& program, const Instruction& instruction) const {
  BoundMovement movement;
  movement.what = fmt::format("{} of {} in {}", instruction.operation->name, program.at(instruction.outputs[0]).label,
                              program.name);
  movement.order = instruction.attributes.integer("ordered", 1) == 1 ? Order::ordered : Order::fast;
  movement.accumulate = static_cast<Accumulate>(instruction.attributes.integer("accumulate"));
  movement.takes_all_ranks = instruction.attributes.integer("all_ranks") == 1;
  const std::size_t moved = instruction.outputs.size();  // further inputs, of a reduce_scatter, are what is added to
  for (std::size_t i = 0; i < moved; ++i) {
    const Buffer &from = program.at(instruction.inputs[i]), &to = program.at(instruction.outputs[i]);
    const std::span in(view_of(from).as<std::byte>(), static_cast<std::size_t>(from.bytes()));
    const std::span out(view_of(to).as<std::byte>(), static_cast<std::size_t>(to.bytes()));
    if (instruction.operation->name == "all_gather") {
      movement.gathered.push_back({in, out});
    } else if (instruction.operation->name == "reduce_scatter") {
      movement.reduced.push_back({in, out, to.type.dtype});
      if (instruction.inputs.size() == moved) continue;
      const Buffer& base = program.at(instruction.inputs[moved + i]);
      movement.reduced.back().base = {view_of(base).as<std::byte>(), static_cast<std::size_t>(base.bytes())};
    } else {
      HEDDLE_CHECK(in.size() == out.size() && from.tier != to.tier);
      HEDDLE_CHECK((from.tier != Tier::nvme && to.tier != Tier::nvme) ||
                   (from.offset % kPageBytes == 0 && to.offset % kPageBytes == 0));
      const bool reads = from.tier == Tier::nvme, writes = to.tier == Tier::nvme;
      movement.transferred.push_back({reads ? nullptr : in.data(), writes ? nullptr : out.data(),
                                      static_cast<std::uint64_t>(reads ? from.offset : to.offset),
                                      reads || writes ? whole_pages(in.size()) : in.size()});
    }
  }
  return movement;
}

void Executor::run_movement(Bound& bound, const Step& step, const Scalars& scalars) {
  const auto index = static_cast<std::size_t>(step.movement);
  MovementQueue& queue = step.queue == Queue::communication ? *communication_ : *transfer_;
  if (step.is_waiting) {
    queue.wait(bound.tickets[index]);
  } else {
    bound.tickets[index] = queue.start(bound.movements[index], scalars);
  }
}

void Executor::run(std::size_t program, const Scalars& scalars, const Scalars* update) {
  Bound& bound = bound_[program];
  HEDDLE_CHECK(scalars.tokens <= bound.capacity || bound.token_views.empty());
  if (scalars.tokens != bound.tokens) {
    for (const auto& [view, id] : bound.token_views) {
      bound.views[view].shape = bound.program->at(id).type_of(scalars.tokens).shape;
    }
    bound.tokens = scalars.tokens;
  }
  held_.begin();
  auto before = Clock::now();
  for (std::size_t i = 0; i < bound.steps.size(); ++i) {
    held_.before(program, i);
    const Step& step = bound.steps[i];
    const Instruction& instruction = bound.program->instructions[i];
    if (guard_ != nullptr && guard_->before(program, i)) before = Clock::now();
    if (step.kernel == nullptr) {
      run_movement(bound, step, scalars);
    } else if (step.first_token == 0 || step.first_token < scalars.tokens) {
      step.kernel({.in = {bound.views.data() + step.first_input, step.inputs},
                   .out = {bound.views.data() + step.first_output, step.outputs},
                   .attributes = instruction.attributes,
                   .scalars = update != nullptr && instruction.phase == Phase::update ? *update : scalars,
                   .scratch = scratch_,
                   .coming = {bound.weights.data() + step.first_coming, step.coming}});
    }
    const auto after = Clock::now();
    const double seconds = std::chrono::duration<double>(after - before).count();
    bound.seconds[i] += seconds;
    if (step.kernel == nullptr) {
      wait_seconds_[static_cast<std::size_t>(step.queue)] += seconds;
    } else {
      phase_seconds_[static_cast<std::size_t>(instruction.phase)] += seconds;
    }
    if (recording_ != nullptr) recording_->push_back({program, i, before, after, held_.now()});
    before = after;
    held_.after(program, i);
  }
  ++bound.runs;
}

TensorView Executor::persistent(std::string_view label) const {
  TensorView found;
  for (const auto& bound : bound_) {
    const int id = bound.program->find_persistent(label);
    if (id >= 0 && (!found.present() || bound.program->at(id).bytes() >
                                            found.elements() * static_cast<std::int64_t>(dtype_bytes(found.dtype)))) {
      found = view_of(bound.program->at(id));
    }
  }
  if (!found.present()) fail("no program has a buffer named {}", label);
  return found;
}

void Executor::filled(std::span<const std::byte> memory) {
  constexpr std::uint64_t kMost = std::uint64_t{16} << 20;
  if (!is_swapped(memory)) return;
  const std::uint64_t before = filled_bytes_.fetch_add(memory.size());
  if (before / kMost != (before + memory.size()) / kMost) swap_.drop_mapped();
}

void Executor::read(std::span<const std::byte> from, std::span<std::byte> to) const {
  if (is_swapped(from)) {
    swap_.read(static_cast<std::uint64_t>(from.data() - swap_.mapped()), to);
  } else {
    std::memcpy(to.data(), from.data(), from.size());
  }
}

void Executor::visit_written(std::size_t program,
                             const std::function<void(std::size_t, std::span<const std::byte>)>& use) const {
  const StepProgram& written = *bound_[program].program;
  for (std::size_t i = 0; i < written.instructions.size(); ++i) {
    for (const int output : written.instructions[i].outputs) {
      if (output < 0) continue;
      const Buffer& buffer = written.at(output);
      use(i, {view_of(buffer).as<const std::byte>(), static_cast<std::size_t>(buffer.bytes())});
    }
  }
}

bool Executor::has_persistent(std::string_view label) const {
  return std::any_of(bound_.begin(), bound_.end(),
                     [&](const Bound& bound) { return bound.program->find_persistent(label) >= 0; });
}

TierBills Executor::held() const { return held_.bills(); }

}  // namespace heddle
