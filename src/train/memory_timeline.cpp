#include "train/memory_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/text.h"
#include "monitor/chart.h"

namespace heddle {
namespace {

using ByClass = std::array<std::uint64_t, kBufferClasses>;

/// What is held in all programs: the largest buffer of each label.
ByClass persistent_bytes(const CompiledRun& compiled) {
  std::map<std::string, std::pair<BufferClass, std::int64_t>> largest;
  for (const auto& program : compiled.programs) {
    for (const auto& buffer : program.buffers) {
      if (buffer.is_timed() || buffer.tier != Tier::device || buffer.view_of >= 0) continue;
      auto& [buffer_class, bytes] = largest[buffer.label];
      buffer_class = buffer.buffer_class;
      bytes = std::max(bytes, buffer.bytes());
    }
  }
  ByClass held{};
  for (const auto& [label, buffer] : largest)
    held[static_cast<std::size_t>(buffer.first)] += static_cast<std::uint64_t>(buffer.second);
  held[static_cast<std::size_t>(BufferClass::workspace)] += compiled.plan.scratch_bytes;
  return held;
}

std::string_view name_of(Phase phase) {
  return phase == Phase::forward ? "forward" : phase == Phase::update ? "optimizer" : "backward";
}

void append(const StepProgram& program, const ByClass& persistent, MemoryTimeline& timeline) {
  const std::size_t first = timeline.live.size();
  timeline.live.resize(first + program.instructions.size(), persistent);
  for (std::size_t id = 0; id < program.buffers.size(); ++id) {
    const Buffer& buffer = program.buffers[id];
    if (!buffer.is_timed() || buffer.tier != Tier::device || buffer.view_of >= 0 ||
        buffer.storage != static_cast<int>(id) || buffer.first_use < 0)
      continue;
    for (int i = buffer.first_use; i <= buffer.last_use; ++i) {
      timeline.live[first + static_cast<std::size_t>(i)][static_cast<std::size_t>(buffer.buffer_class)] +=
          static_cast<std::uint64_t>(buffer.bytes());
    }
  }
  for (std::size_t i = 0; i < program.instructions.size(); ++i) {
    const std::string_view name = name_of(program.instructions[i].phase);
    if (timeline.marks.empty() || timeline.marks.back().phase != name)
      timeline.marks.push_back({first + i, std::string(name)});
  }
}

}  // namespace

MemoryTimeline memory_timeline(const CompiledRun& compiled) {
  const ByClass persistent = persistent_bytes(compiled);
  MemoryTimeline timeline;
  for (const int program : {compiled.micro_batch, compiled.norm, compiled.update})
    append(compiled.programs[static_cast<std::size_t>(program)], persistent, timeline);
  return timeline;
}

MemoryTimeline memory_timeline(const CompiledRun& compiled, const StepRecording& recording) {
  MemoryTimeline timeline;
  for (const ExecutedInstruction& executed : recording) {
    const std::string_view name = name_of(compiled.programs[executed.program].instructions[executed.instruction].phase);
    if (std::ranges::find(timeline.marks, name, &MemoryTimeline::Mark::phase) == timeline.marks.end())
      timeline.marks.push_back({timeline.live.size(), std::string(name)});
    timeline.live.push_back(executed.held[static_cast<std::size_t>(Tier::device)]);
  }
  return timeline;
}

std::string timeline_image(const MemoryTimeline& timeline, const std::string& title) {
  LineChart chart;
  chart.title = title;
  chart.subtitle = "GiB alive on the device of a rank";
  for (const auto& [instruction, phase] : timeline.marks)
    chart.subtitle += fmt::format("; {} from {}", phase, instruction);
  chart.x_label = "instruction of an optimizer step";
  chart.y_from_zero = true;
  constexpr double kGiB = 0x1p30;
  std::vector<double> instructions(timeline.live.size());
  std::iota(instructions.begin(), instructions.end(), 0.0);
  Series total{"all", Mark::line, 0, instructions, {}};
  for (const auto& live : timeline.live)
    total.y.push_back(static_cast<double>(std::accumulate(live.begin(), live.end(), std::uint64_t{0})) / kGiB);
  chart.series.push_back(std::move(total));
  for (std::size_t c = 0; c < kBufferClasses; ++c) {
    Series series{std::string(class_name(static_cast<BufferClass>(c))),
                  Mark::line,
                  static_cast<int>(c % 7) + 1,
                  instructions,
                  {}};
    for (const auto& live : timeline.live) series.y.push_back(static_cast<double>(live[c]) / kGiB);
    const double most = *std::max_element(series.y.begin(), series.y.end());
    if (most > 0.005 * chart.series[0].y[0]) chart.series.push_back(std::move(series));  // what the eye can see
  }
  return draw(chart, Canvas::file);
}

}  // namespace heddle
