#include "train/executor.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <unordered_set>

#include "base/error.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

template <std::size_t N>
std::uint64_t sum(const std::array<std::uint64_t, N>& bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

}  // namespace

Executor::Executor(const std::vector<const StepProgram*>& programs, const MemoryPlan& plan, KernelTable kernels,
                   int threads)
    : arena_(plan.device.peak, "device tier") {
  scratch_.shared = arena_.data() + plan.scratch_offset;
  scratch_.shared_bytes = kSharedScratchBytes;
  scratch_.per_thread = scratch_.shared + kSharedScratchBytes;
  scratch_.bytes_per_thread = kScratchBytesPerThread;
  scratch_.threads = threads;
  HEDDLE_CHECK(plan.scratch_bytes >= kSharedScratchBytes + static_cast<std::size_t>(threads) * kScratchBytesPerThread);
  for (const auto* program : programs) bound_.push_back(bind(*program, kernels));
  persistent_[static_cast<std::size_t>(BufferClass::workspace)] = plan.scratch_bytes;
  count_persistent();
}

TensorView Executor::view_of(const Buffer& buffer) const {
  HEDDLE_CHECK(buffer.offset >= 0 && static_cast<std::size_t>(buffer.offset + buffer.bytes()) <= arena_.bytes());
  return {arena_.data() + buffer.offset, buffer.type.dtype, buffer.type.shape};
}

Executor::Bound Executor::bind(const StepProgram& program, KernelTable kernels) const {
  Bound bound;
  bound.program = &program;
  const std::size_t count = program.instructions.size();
  bound.taken.resize(count);
  bound.given_back.resize(count);
  bound.seconds.resize(count);
  const auto append = [&](const std::vector<int>& operands) {
    const auto first = static_cast<std::uint32_t>(bound.views.size());
    for (const int operand : operands) {
      if (operand < 0) {
        bound.views.emplace_back();
        continue;
      }
      const Buffer& buffer = program.at(operand);
      if (buffer.type.token_axis >= 0) {
        bound.token_views.emplace_back(static_cast<std::uint32_t>(bound.views.size()), buffer.type.token_axis);
        bound.capacity = std::max(bound.capacity, buffer.type.shape[buffer.type.token_axis]);
      }
      bound.views.push_back(view_of(buffer));
    }
    return first;
  };
  for (const auto& instruction : program.instructions) {
    Step step{};
    step.kernel = kernels(instruction.operation->name);
    if (step.kernel == nullptr) fail("this backend has no kernel for {}", instruction.operation->name);
    step.first_input = append(instruction.inputs);
    step.inputs = static_cast<std::uint32_t>(instruction.inputs.size());
    step.first_output = append(instruction.outputs);
    step.outputs = static_cast<std::uint32_t>(instruction.outputs.size());
    bound.steps.push_back(step);
  }
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    if (buffer.is_persistent || buffer.view_of >= 0 || buffer.storage != static_cast<int>(id) || buffer.first_use < 0)
      continue;
    bound.taken[static_cast<std::size_t>(buffer.first_use)].push_back({buffer.bytes(), buffer.buffer_class});
    bound.given_back[static_cast<std::size_t>(buffer.last_use)].push_back({buffer.bytes(), buffer.buffer_class});
  }
  return bound;
}

void Executor::count_persistent() {
  std::unordered_set<std::string_view> labels_seen;
  // The same label may have a greater capacity in another program: the greatest is what is held.
  for (const auto& bound : bound_) {
    for (const auto& buffer : bound.program->buffers) {
      if (!buffer.is_persistent || buffer.view_of >= 0 || !labels_seen.insert(buffer.label).second) continue;
      std::int64_t bytes = 0;
      for (const auto& other : bound_) {
        const int id = other.program->find_persistent(buffer.label);
        if (id >= 0) bytes = std::max(bytes, other.program->at(id).bytes());
      }
      persistent_[static_cast<std::size_t>(buffer.buffer_class)] += static_cast<std::uint64_t>(bytes);
    }
  }
  greatest_ = at_peak_ = persistent_;
  most_ = sum(persistent_);
}

void Executor::run(std::size_t program, const Scalars& scalars) {
  Bound& bound = bound_[program];
  HEDDLE_CHECK(scalars.tokens <= bound.capacity || bound.token_views.empty());
  if (scalars.tokens != bound.tokens) {
    for (const auto& [view, axis] : bound.token_views) bound.views[view].shape[axis] = scalars.tokens;
    bound.tokens = scalars.tokens;
  }
  auto live = persistent_;
  auto before = Clock::now();
  for (std::size_t i = 0; i < bound.steps.size(); ++i) {
    for (const auto& held : bound.taken[i])
      live[static_cast<std::size_t>(held.buffer_class)] += static_cast<std::uint64_t>(held.bytes);
    for (std::size_t c = 0; c < kBufferClasses; ++c) greatest_[c] = std::max(greatest_[c], live[c]);
    if (const auto total = sum(live); total > most_) {
      most_ = total;
      at_peak_ = live;
    }
    const Step& step = bound.steps[i];
    const Instruction& instruction = bound.program->instructions[i];
    step.kernel({.in = {bound.views.data() + step.first_input, step.inputs},
                 .out = {bound.views.data() + step.first_output, step.outputs},
                 .attributes = instruction.attributes,
                 .scalars = scalars,
                 .scratch = scratch_});
    const auto after = Clock::now();
    const double seconds = std::chrono::duration<double>(after - before).count();
    bound.seconds[i] += seconds;
    phase_seconds_[static_cast<std::size_t>(instruction.phase)] += seconds;
    before = after;
    for (const auto& held : bound.given_back[i])
      live[static_cast<std::size_t>(held.buffer_class)] -= static_cast<std::uint64_t>(held.bytes);
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

bool Executor::has_persistent(std::string_view label) const {
  return std::any_of(bound_.begin(), bound_.end(),
                     [&](const Bound& bound) { return bound.program->find_persistent(label) >= 0; });
}

Bill Executor::held() const {
  Bill bill;
  bill.peak = arena_.bytes();
  bill.at_peak = at_peak_;
  bill.greatest = greatest_;
  auto& workspace = bill.at_peak[static_cast<std::size_t>(BufferClass::workspace)];
  workspace += bill.peak - sum(bill.at_peak);
  auto& greatest = bill.greatest[static_cast<std::size_t>(BufferClass::workspace)];
  greatest = std::max(greatest, workspace);
  return bill;
}

}  // namespace heddle
