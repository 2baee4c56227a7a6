// What fits, as text and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "planner/fit.h"

namespace heddle {
namespace {

constexpr std::size_t kPrinted = 5;

std::string settings_text(const Settings& settings) {
  std::string text;
  for (const auto& [key, value] : settings) text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", key, value);
  return text;
}

std::string signed_seconds(double seconds) {
  return std::abs(seconds) < 1 ? fmt::format("{:+.1f} ms", seconds * 1e3) : fmt::format("{:+.2f} s", seconds);
}

/// "; 29.9 GiB on host each; 44.9 GiB on nvme"
std::string other_tiers(const Fit& fit, const Alternative& alternative) {
  const std::string_view each = fit.ranks > 1 ? " each" : "";
  std::string text;
  if (alternative.host_peak > 0) text += fmt::format("; {} on host{}", format_bytes(alternative.host_peak), each);
  if (alternative.nvme_peak > 0) text += fmt::format("; {} on nvme{}", format_bytes(alternative.nvme_peak), each);
  return text;
}

std::string alternative_text(const Fit& fit, const Alternative& alternative) {
  const double extra = alternative.cost.seconds - fit.run.cost.seconds;
  return fmt::format("  {:>10}  {:>11} ({:+.0f}%)  {}{}\n", format_bytes(alternative.peak), signed_seconds(extra),
                     100 * extra / fit.run.cost.seconds, settings_text(alternative.settings),
                     other_tiers(fit, alternative));
}

Json settings_document(const Settings& settings) {
  Json document = Json::object();
  for (const auto& [key, value] : settings) document[key] = value;
  return document;
}

Json alternative_document(const Fit& fit, const Alternative& alternative) {
  const StepCost &cost = alternative.cost, &base = fit.run.cost;
  return {{"settings", settings_document(alternative.settings)},
          {"peak", alternative.peak},
          {"host_peak", alternative.host_peak},
          {"nvme_peak", alternative.nvme_peak},
          {"extra_flops", cost.flops - base.flops},
          {"extra_moved_bytes", cost.moved_bytes - base.moved_bytes},
          {"extra_seconds", cost.seconds - base.seconds},
          {"extra_share", (cost.seconds - base.seconds) / base.seconds}};
}

}  // namespace

std::string fit_text(const Fit& fit) {
  const std::int64_t excess = fit.excess(fit.run);
  const bool fits = fit.fits();
  const bool is_total = fit.is_bound_by_total();
  const std::uint64_t limit = is_total ? fit.limits.total : fit.limits.device;
  std::string text =
      fmt::format("\n{}{}: {}, {} bytes {} of {} ({}){}\n", fit.ranks > 1 ? "each rank on " : "",
                  fit.is_named ? fit.device.name : "the budget", fits ? "fits" : "does not fit",
                  format_count(static_cast<std::uint64_t>(fits ? -excess : excess)), fits ? "to spare" : "too many",
                  format_bytes(limit), format_count(limit), is_total ? " for device and host together" : "");
  if (fit.largest_batch == 0) {
    text += "largest per_device_train_batch_size that fits: none, not even 1\n";
  } else {
    text += fmt::format("largest per_device_train_batch_size that fits: {}{}\n", fit.largest_batch,
                        fit.is_largest_searched ? ", or more" : "");
  }
  if (fits) return text;
  if (fit.alternatives.empty()) {
    return text + fmt::format("nothing that was tried makes it fit ({} alternatives); the least is {} with {}{}\n",
                              fit.tried, format_bytes(fit.smallest.peak),
                              fit.smallest.settings.empty() ? "the run as it is" : settings_text(fit.smallest.settings),
                              other_tiers(fit, fit.smallest));
  }
  text += fmt::format("what would make it fit: peak, and time on top of a step's {:.3g} s (by a roofline)\n",
                      fit.run.cost.seconds);
  const std::size_t printed = std::min(kPrinted, fit.alternatives.size());
  for (std::size_t i = 0; i < printed; ++i) text += alternative_text(fit, fit.alternatives[i]);
  return text;
}

void add_fit(Json& document, const Fit& fit) {
  const Device& device = fit.device;
  document["hardware"] = {{"name", device.name},
                          {"devices", fit.ranks},
                          {"memory", device.memory},
                          {"half_flops_per_second", device.half_flops},
                          {"float_flops_per_second", device.float_flops},
                          {"memory_bytes_per_second", device.memory_bandwidth},
                          {"host_link_bytes_per_second", device.host_link},
                          {"peer_link_bytes_per_second", device.peer_link}};
  Json& result = document["fit"];
  result = {{"budget", fit.limits.device},
            {"peak", fit.run.peak},
            {"fits", fit.fits()},
            {"spare_bytes", -fit.excess(fit.run)},
            {"step_seconds", fit.run.cost.seconds},
            {"step_flops", fit.run.cost.flops},
            {"largest_per_device_train_batch_size", fit.largest_batch},
            {"alternatives", Json::array()}};
  for (const auto& alternative : fit.alternatives)
    result["alternatives"].push_back(alternative_document(fit, alternative));
  if (!fit.fits()) result["smallest"] = alternative_document(fit, fit.smallest);
}

}  // namespace heddle
