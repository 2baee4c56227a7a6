#include "train/memory_phases.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "train/held_bytes.h"

namespace heddle {
namespace {

using ByClass = std::array<std::uint64_t, kBufferClasses>;

std::uint64_t sum(const ByClass& bytes) { return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}); }

/// "model.layers.31.mlp.up_proj.weight" as "model.layers.*.mlp.up_proj.weight".
std::string without_numbers(const std::string& label) {
  std::string text;
  for (std::size_t i = 0; i < label.size();) {
    const bool starts_part = i > 0 && label[i - 1] == '.';
    std::size_t end = i;
    while (end < label.size() && std::isdigit(static_cast<unsigned char>(label[end])) != 0) ++end;
    if (starts_part && end > i && end < label.size() && label[end] == '.') {
      text += '*';
      i = end;
    } else {
      text += label[i++];
    }
  }
  return text;
}

/// The part of a run that an instruction belongs to.
std::string phase_of(const CompiledRun& compiled, std::size_t program, Phase phase) {
  const int index = static_cast<int>(program);
  if (index == compiled.reference || index == compiled.evaluation_reference) return "reference";
  if (index == compiled.evaluate) return "evaluation";
  if (phase == Phase::update) return "optimizer";
  return phase == Phase::forward ? "forward" : "backward";
}

/// States and gradients are there for every parameter: a line for each kind says more than one for each weight.
std::string persistent_source(const Buffer& buffer) {
  switch (buffer.buffer_class) {
    case BufferClass::parameters: return "weights";
    case BufferClass::master_weights: return "master weights";
    case BufferClass::gradients: return "gradients";
    case BufferClass::optimizer_states: return buffer.label.substr(buffer.label.rfind(' ') + 1);
    default: return without_numbers(buffer.label);
  }
}

/// Of an activation the operation that makes it, and the weight that this operation has.
std::string transient_source(const StepProgram& program, const Buffer& buffer) {
  if (buffer.buffer_class != BufferClass::activations) return without_numbers(buffer.label);
  const Instruction& maker = program.instructions[static_cast<std::size_t>(buffer.first_use)];
  std::string source(maker.operation->name);
  if (maker.queue != Queue::compute) source += " of " + buffer.label;
  for (const int input : maker.inputs) {
    if (input < 0) continue;
    constexpr std::string_view kWeight = ".weight";  // "... gathered" or "... fetched" may follow
    const std::string& label = program.at(program.root(input)).label;
    if (const auto found = label.find(kWeight); found != std::string::npos)
      return source + " of " + without_numbers(label.substr(0, found + kWeight.size()));
  }
  return source;
}

/// What is alive on a tier, buffers that are alike together.
class AliveBuffers {
 public:
  explicit AliveBuffers(Tier tier) : tier_(tier) {}

  /// The greatest buffer of each label, as in the plan.
  void add_persistent(const std::vector<StepProgram>& programs) {
    std::map<std::string, const Buffer*> largest;
    for (const auto& program : programs) {
      for (const auto& buffer : program.buffers) {
        if (buffer.is_timed() || buffer.view_of >= 0 || buffer.tier != tier_) continue;
        const Buffer*& known = largest[buffer.label];
        if (known == nullptr || known->bytes() < buffer.bytes()) known = &buffer;
      }
    }
    for (const auto& [label, buffer] : largest) add(*buffer, persistent_source(*buffer), buffer->bytes());
  }

  /// What lives while that instruction runs. Of buffers computed in each other's place the last is there.
  void add_timed(const StepProgram& program, int instruction) {
    std::map<int, const Buffer*> contents;  // by storage
    for (const Buffer& buffer : program.buffers) {
      if (buffer.view_of >= 0 || buffer.tier != tier_ || !buffer.is_timed() || buffer.storage < 0) continue;
      if (buffer.first_use < 0 || buffer.first_use > instruction) continue;
      if (program.at(buffer.storage).last_use < instruction) continue;
      const Buffer*& content = contents[buffer.storage];
      if (content == nullptr || content->first_use < buffer.first_use) content = &buffer;
    }
    for (const auto& [storage, content] : contents) {
      add(*content, content->is_carried ? persistent_source(*content) : transient_source(program, *content),
          program.at(storage).bytes());
    }
  }

  void add_memory(BufferClass buffer_class, const std::string& source, std::uint64_t bytes) {
    if (bytes > 0) groups_[{buffer_class, source}] = {buffer_class, source, 0, bytes};
  }

  /// The largest first.
  std::vector<AliveGroup> groups() const {
    std::vector<AliveGroup> list;
    for (const auto& [key, group] : groups_) list.push_back(group);
    std::ranges::stable_sort(list, std::ranges::greater{}, &AliveGroup::bytes);
    return list;
  }

 private:
  void add(const Buffer& buffer, const std::string& source, std::int64_t bytes) {
    AliveGroup& group = groups_[{buffer.buffer_class, source}];
    group.buffer_class = buffer.buffer_class;
    group.source = source;
    ++group.count;
    group.bytes += static_cast<std::uint64_t>(bytes);
  }

  const Tier tier_;
  std::map<std::pair<BufferClass, std::string>, AliveGroup> groups_;
};

/// Follows what is held through all programs, as the executor will.
class History {
 public:
  explicit History(const CompiledRun& compiled)
      : compiled_(compiled),
        held_(compiled.program_list(), {}, compiled.plan.scratch_bytes, compiled.plan.staging_bytes) {
    held_.begin();
    persistent_ = most_ = held_.now();
    for (std::size_t p = 0; p < compiled.programs.size(); ++p) follow(p);
  }

  TierPhases of(Tier tier) const {
    TierPhases history{tier, {}, peak(tier)};
    const auto t = static_cast<std::size_t>(tier);
    ByClass weights{};
    for (const auto c : {BufferClass::parameters, BufferClass::master_weights})
      weights[static_cast<std::size_t>(c)] = persistent_[t][static_cast<std::size_t>(c)];
    history.phases.push_back({"load", weights});
    history.phases.push_back({"init", persistent_[t]});
    for (const std::string name : {"reference", "forward", "backward", "optimizer", "evaluation"}) {
      if (const auto found = phases_.find(name); found != phases_.end())
        history.phases.push_back({name, found->second[t]});
    }
    history.phases.push_back({"save", persistent_[t]});
    return history;
  }

 private:
  void follow(std::size_t p) {
    const StepProgram& program = compiled_.programs[p];
    for (std::size_t i = 0; i < program.instructions.size(); ++i) {
      held_.before(p, i);
      auto& phase = phases_[phase_of(compiled_, p, program.instructions[i].phase)];
      for (std::size_t t = 0; t < phase.size(); ++t) {
        const ByClass& now = held_.now()[t];
        if (sum(now) > sum(phase[t])) phase[t] = now;
        if (sum(now) <= sum(most_[t])) continue;
        most_[t] = now;
        moments_[t] = {p, i};
      }
      held_.after(p, i);
    }
  }

  PeakMoment peak(Tier tier) const {
    PeakMoment peak;
    AliveBuffers alive(tier);
    alive.add_persistent(compiled_.programs);
    const auto t = static_cast<std::size_t>(tier);
    if (moments_[t]) {
      const auto [p, i] = *moments_[t];
      const StepProgram& program = compiled_.programs[p];
      const Instruction& instruction = program.instructions[i];
      peak.program = program.name;
      peak.phase = phase_of(compiled_, p, instruction.phase);
      peak.unit = program.units[static_cast<std::size_t>(instruction.unit)];
      peak.operation = instruction.operation->name;
      peak.instruction = i;
      alive.add_timed(program, static_cast<int>(i));
    }
    if (tier == Tier::device) {
      alive.add_memory(BufferClass::workspace, "scratch of the kernels", compiled_.plan.scratch_bytes);
      alive.add_memory(BufferClass::communication, "messages on their way", compiled_.plan.staging_bytes);
    }
    alive.add_memory(BufferClass::workspace, "unused between buffers", compiled_.plan.bills()[t].peak - sum(most_[t]));
    peak.alive = alive.groups();
    return peak;
  }

  const CompiledRun& compiled_;
  HeldBytes held_;
  std::array<ByClass, 3> persistent_{}, most_{};
  std::array<std::optional<std::pair<std::size_t, std::size_t>>, 3> moments_{};  // program, instruction
  std::map<std::string, std::array<ByClass, 3>> phases_;
};

}  // namespace

std::uint64_t PhaseBytes::total() const { return sum(bytes); }

std::vector<TierPhases> memory_phases(const CompiledRun& compiled) {
  const History history(compiled);
  std::vector<TierPhases> tiers;
  for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
    if (compiled.plan.bills()[static_cast<std::size_t>(tier)].peak > 0) tiers.push_back(history.of(tier));
  }
  return tiers;
}

}  // namespace heddle
