#include "train/step_timeline.h"

#include <fmt/format.h>

#include <numeric>

#include "formats/files.h"
#include "train/memory_timeline.h"

namespace heddle {
namespace {

class Trace {
 public:
  Trace(const CompiledRun& compiled, const StepRecording& recording, int rank)
      : compiled_(compiled), recording_(recording), rank_(rank) {}

  Json document() {
    // Viewers append the numbers: Perfetto shows "heddle rank 0" and "instructions 0".
    add_name("process_name", "heddle rank");
    add_name("thread_name", "instructions");
    for (const ExecutedInstruction& executed : recording_) {
      for (std::size_t t = 0; t < executed.held.size(); ++t) {
        for (std::size_t c = 0; c < kBufferClasses; ++c) is_ever_held_[t][c] |= executed.held[t][c] > 0;
      }
    }
    for (std::size_t first = 0; first < recording_.size();) {
      std::size_t end = first + 1;
      while (end < recording_.size() && is_same_stretch(recording_[first], recording_[end])) ++end;
      add_stretch(first, end);
      first = end;
    }
    return {{"traceEvents", std::move(events_)}, {"displayTimeUnit", "ms"}};
  }

 private:
  const StepProgram& program_of(const ExecutedInstruction& executed) const {
    return compiled_.programs[executed.program];
  }
  const Instruction& instruction_of(const ExecutedInstruction& executed) const {
    return program_of(executed).instructions[executed.instruction];
  }

  /// Of one unit in one direction: what is recomputed goes with the backward that it is for.
  bool is_same_stretch(const ExecutedInstruction& a, const ExecutedInstruction& b) const {
    if (a.program != b.program || b.instruction <= a.instruction) return false;
    return instruction_of(a).unit == instruction_of(b).unit && direction_of(a) == direction_of(b);
  }
  std::string_view direction_of(const ExecutedInstruction& executed) const {
    const Phase phase = instruction_of(executed).phase;
    return phase_name(phase == Phase::recompute ? Phase::backward : phase);
  }

  double microseconds(std::chrono::steady_clock::time_point time) const {
    return std::chrono::duration<double, std::micro>(time - recording_.front().begin).count();
  }

  void add_name(std::string_view of, std::string_view name) {
    Json arguments = Json::object();
    arguments["name"] = name;
    events_.push_back({{"ph", "M"}, {"name", of}, {"pid", rank_}, {"tid", kThread}, {"args", std::move(arguments)}});
  }

  void add_slice(std::string name, std::string_view category, const ExecutedInstruction& first,
                 const ExecutedInstruction& last, Json arguments) {
    events_.push_back({{"ph", "X"},
                       {"name", std::move(name)},
                       {"cat", category},
                       {"pid", rank_},
                       {"tid", kThread},
                       {"ts", microseconds(first.begin)},
                       {"dur", microseconds(last.end) - microseconds(first.begin)},
                       {"args", std::move(arguments)}});
  }

  static Json labels(const StepProgram& program, const std::vector<int>& operands) {
    Json labels = Json::array();
    for (const int operand : operands) {
      if (operand >= 0) labels.push_back(program.at(operand).label);
    }
    return labels;
  }

  void add_stretch(std::size_t first, std::size_t end) {
    const ExecutedInstruction& begin = recording_[first];
    const std::string& unit = program_of(begin).units[static_cast<std::size_t>(instruction_of(begin).unit)];
    Json arguments = Json::object();
    arguments["program"] = program_of(begin).name;
    add_slice(fmt::format("{} {}", direction_of(begin), unit), "unit", begin, recording_[end - 1],
              std::move(arguments));
    for (std::size_t i = first; i < end; ++i) {
      const ExecutedInstruction& executed = recording_[i];
      add_counters(executed, executed.begin);
      const Instruction& instruction = instruction_of(executed);
      // A wait writes nothing: its operands are what it waits for.
      const bool has_outputs = !instruction.outputs.empty();
      add_slice(std::string(instruction.operation->name), phase_name(instruction.phase), executed, executed,
                {{"index", executed.instruction},
                 {has_outputs ? "outputs" : "inputs",
                  labels(program_of(executed), has_outputs ? instruction.outputs : instruction.inputs)}});
    }
  }

  /// Perfetto makes a track of each series, named after the counter and the series: "device bytes" is the sum of
  /// "device bytes parameters" and so on.
  void add_counter(std::string name, std::chrono::steady_clock::time_point time, Json series) {
    events_.push_back({{"ph", "C"},
                       {"name", std::move(name)},
                       {"pid", rank_},
                       {"ts", microseconds(time)},
                       {"args", std::move(series)}});
  }

  /// Where they changed, of the classes that the step holds in the tier.
  void add_counters(const ExecutedInstruction& executed, std::chrono::steady_clock::time_point time) {
    for (const Tier tier : {Tier::device, Tier::host, Tier::nvme}) {
      const auto& held = executed.held[static_cast<std::size_t>(tier)];
      auto& before = counted_[static_cast<std::size_t>(tier)];
      if (held == before) continue;
      before = held;
      Json bytes = Json::object();
      for (std::size_t c = 0; c < kBufferClasses; ++c) {
        if (is_ever_held_[static_cast<std::size_t>(tier)][c])
          bytes[std::string(class_name(static_cast<BufferClass>(c)))] = held[c];
      }
      Json total = Json::object();
      total["bytes"] = std::accumulate(held.begin(), held.end(), std::uint64_t{0});
      add_counter(std::string(tier_name(tier)), time, std::move(total));
      add_counter(fmt::format("{} bytes", tier_name(tier)), time, std::move(bytes));
    }
  }

  static constexpr int kThread = 0;

  const CompiledRun& compiled_;
  const StepRecording& recording_;
  const int rank_;
  Json events_ = Json::array();
  std::array<std::array<std::uint64_t, kBufferClasses>, 3> counted_{};
  std::array<std::array<bool, kBufferClasses>, 3> is_ever_held_{};
};

}  // namespace

Json step_trace(const CompiledRun& compiled, const StepRecording& recording, int rank) {
  return Trace(compiled, recording, rank).document();
}

void write_step_timeline(const std::filesystem::path& folder, const CompiledRun& compiled,
                         const StepRecording& recording, const std::string& title) {
  write_text_file(folder / "timeline.json", step_trace(compiled, recording, compiled.sharding.rank).dump() + "\n");
  write_text_file(folder / "timeline.svg", timeline_image(memory_timeline(compiled, recording), title));
}

}  // namespace heddle
