// What is in use when, as text and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/text.h"
#include "train/memory_phases.h"

namespace heddle {
namespace {

constexpr std::size_t kPrinted = 10;  // groups of a tier

std::string group_text(const AliveGroup& group) {
  return fmt::format("  {:>10}  {:<18}{}{}\n", format_bytes(group.bytes), class_name(group.buffer_class), group.source,
                     group.count > 1 ? fmt::format(", {} buffers", format_count(group.count)) : "");
}

std::string peak_text(const TierPhases& history) {
  const PeakMoment& peak = history.peak;
  std::string text = fmt::format("\nalive at the peak of {}", tier_name(history.tier));
  if (!peak.program.empty()) {
    text += fmt::format(": {} of {}, {} (instruction {} of program {})", peak.phase, peak.unit, peak.operation,
                        peak.instruction, peak.program);
  }
  text += "\n";
  const std::size_t printed = std::min(kPrinted, peak.alive.size());
  for (std::size_t i = 0; i < printed; ++i) text += group_text(peak.alive[i]);
  if (printed == peak.alive.size()) return text;
  const auto rest = std::accumulate(peak.alive.begin() + static_cast<std::ptrdiff_t>(printed), peak.alive.end(),
                                    std::uint64_t{0}, [](auto sum, const auto& group) { return sum + group.bytes; });
  return text + fmt::format("  {:>10}  {} more kinds\n", format_bytes(rest), peak.alive.size() - printed);
}

}  // namespace

std::string phases_text(const std::vector<TierPhases>& tiers) {
  std::string text = fmt::format("\n{:<18}", "in use at most");
  for (const PhaseBytes& phase : tiers.front().phases) text += fmt::format("{:>12}", phase.name);
  text += "\n";
  for (const TierPhases& history : tiers) {
    text += fmt::format("{:<18}", tier_name(history.tier));
    for (const PhaseBytes& phase : history.phases) text += fmt::format("{:>12}", format_bytes(phase.total()));
    text += "\n";
  }
  for (const TierPhases& history : tiers) text += peak_text(history);
  return text;
}

void add_phases(Json& document, const std::vector<TierPhases>& tiers) {
  Json all_phases = Json::object(), peaks = Json::object();
  for (const TierPhases& history : tiers) {
    const std::string tier(tier_name(history.tier));
    Json phases = Json::object();
    for (const PhaseBytes& phase : history.phases) {
      Json classes = Json::object();
      for (std::size_t c = 0; c < kBufferClasses; ++c)
        classes[std::string(class_name(static_cast<BufferClass>(c)))] = phase.bytes[c];
      phases[phase.name] = {{"bytes", phase.total()}, {"classes", std::move(classes)}};
    }
    all_phases[tier] = std::move(phases);
    const PeakMoment& peak = history.peak;
    Json moment = Json::object();
    if (!peak.program.empty()) {
      moment["program"] = peak.program;
      moment["instruction"] = peak.instruction;
      moment["operation"] = peak.operation;
      moment["phase"] = peak.phase;
      moment["unit"] = peak.unit;
    }
    Json alive = Json::array();
    for (const AliveGroup& group : peak.alive) {
      alive.push_back({{"class", class_name(group.buffer_class)},
                       {"source", group.source},
                       {"buffers", group.count},
                       {"bytes", group.bytes}});
    }
    moment["alive"] = std::move(alive);
    peaks[tier] = std::move(moment);
  }
  document["phases"] = std::move(all_phases);
  document["alive_at_peak"] = std::move(peaks);
}

}  // namespace heddle
