#include "train/memory_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/text.h"
#include "monitor/chart.h"
#include "train/held_bytes.h"

namespace heddle {
namespace {

std::string_view name_of(Phase phase) {
  return phase == Phase::forward ? "forward" : phase == Phase::update ? "optimizer" : "backward";
}

}  // namespace

MemoryTimeline memory_timeline(const CompiledRun& compiled) {
  HeldBytes held(compiled.program_list(), {}, compiled.plan.scratch_bytes, compiled.plan.staging_bytes);
  held.begin();
  MemoryTimeline timeline;
  for (const int p : {compiled.micro_batch, compiled.norm, compiled.update}) {
    const auto program = static_cast<std::size_t>(p);
    const auto& instructions = compiled.programs[program].instructions;
    for (std::size_t i = 0; i < instructions.size(); ++i) {
      const std::string_view name = name_of(instructions[i].phase);
      if (timeline.marks.empty() || timeline.marks.back().phase != name)
        timeline.marks.push_back({timeline.live.size(), std::string(name)});
      held.before(program, i);
      timeline.live.push_back(held.now()[static_cast<std::size_t>(Tier::device)]);
      held.after(program, i);
    }
  }
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
