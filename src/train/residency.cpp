#include "train/residency.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace heddle {
namespace {

constexpr std::uint64_t kShareLeft = 8;  // an eighth

/// The greatest number from `least`, which fits, to `most` that fits.
template <typename Fits>
std::size_t most_that_fit(std::size_t least, std::size_t most, const Fits& fits) {
  if (fits(most)) return most;
  std::size_t low = least, high = most;  // high does not fit
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

class Residency {
 public:
  Residency(RunConfig& run, const CompileVariant& compile, const MemoryLimits& limits)
      : run_(run), compile_(compile), limits_(limits) {}

  void choose() {
    const bool keeps_activations = may_return(run_.offload_activations) && run_.recompute != Recompute::automatic;
    const bool keeps_states = may_return(run_.offload_optimizer);
    const bool keeps_gradients = run_.offload_gradients == OffloadDevice::nvme;
    if (!keeps_activations && !keeps_states && !keeps_gradients) return;
    CompiledRun moved = compile_(run_);
    if (keeps_gradients) keep_gradients_of_several_units(moved);
    if (limits_.excess(moved.plan) > 0) return;
    if (!run_.memory_budget) {
      // What the machine has free, less a share: what else the process takes is not planned.
      const std::uint64_t least = moved.plan.device.peak + moved.plan.host.peak;
      limits_.total = std::max(least, limits_.total - limits_.total / kShareLeft);
    }
    // Activations last: the others have only the update to come and go in.
    if (keeps_gradients) keep_gradients(moved);
    if (keeps_states) keep_most(&RunConfig::resident_states, moved, limits_);
    if (keeps_activations) keep_activations(moved);
  }

 private:
  bool has_budget() const { return run_.device_memory || run_.memory_budget; }
  /// Whether there is a budget for what would stay in place of going there.
  bool may_return(OffloadDevice place) const {
    return place == OffloadDevice::nvme ? has_budget() : place == OffloadDevice::cpu && run_.device_memory;
  }

  /// The gradient of a tied head comes as a whole whenever something is added to it: where it stays the run may need
  /// less, which then takes the place of `moved`.
  void keep_gradients_of_several_units(CompiledRun& moved) {
    RunConfig variant = run_;
    variant.resident_gradients = moved.residents.groups_of_several_units;
    CompiledRun kept = compile_(variant);
    const auto in_memory = [](const CompiledRun& run) { return run.plan.device.peak + run.plan.host.peak; };
    const std::uint64_t device = has_budget() ? limits_.device : moved.plan.device.peak;
    if (in_memory(kept) >= in_memory(moved) || kept.plan.device.peak > device) return;
    run_.resident_gradients = variant.resident_gradients;
    moved = std::move(kept);
  }

  void keep_activations(const CompiledRun& moved) {
    const auto& units = moved.programs[static_cast<std::size_t>(moved.micro_batch)].units;
    const auto blocks = static_cast<std::size_t>(std::ranges::count_if(units, is_block));
    RunConfig variant = run_;
    const auto keep = [&](std::size_t last) {
      variant.block_activations.clear();
      for (std::size_t block = 0; block < blocks; ++block) {
        variant.block_activations.push_back(activations_of(run_, block));
        variant.block_activations.back().is_offloaded = block + last < blocks;
      }
    };
    keep(most_that_fit(0, blocks, [&](std::size_t last) {
      keep(last);
      return limits_.excess(compile_(variant).plan) <= 0;
    }));
    run_.block_activations = variant.block_activations;
  }

  void keep_gradients(const CompiledRun& moved) {
    // Without a budget: no more than it is without them.
    MemoryLimits limits = limits_;
    if (!has_budget()) limits.device = moved.plan.device.peak;
    if (!run_.memory_budget) limits.total = std::min(limits.total, limits.device + moved.plan.host.peak);
    keep_most(&RunConfig::resident_gradients, moved, limits);
  }

  void keep_most(std::size_t RunConfig::*groups, const CompiledRun& moved, const MemoryLimits& limits) {
    RunConfig variant = run_;
    run_.*groups = most_that_fit(run_.*groups, moved.residents.groups, [&](std::size_t count) {
      variant.*groups = count;
      return limits.excess(compile_(variant).plan) <= 0;
    });
  }

  RunConfig& run_;
  const CompileVariant& compile_;
  MemoryLimits limits_;
};

}  // namespace

void choose_residency(RunConfig& run, const CompileVariant& compile, const MemoryLimits& limits) {
  Residency(run, compile, limits).choose();
}

std::vector<std::string> decisions(const CompiledRun& compiled) {
  std::vector<std::string> lines;
  if (!compiled.block_activations.empty())
    lines.push_back(fmt::format("{}: {}", compiled.activations_key, activations_text(compiled.block_activations)));
  const auto& residents = compiled.residents;
  if (residents.gradients > 0) {
    lines.push_back(fmt::format("offload_gradients: nvme: {} of {} gradients stay in memory", residents.gradients,
                                residents.weights));
  }
  if (residents.states > 0) {
    lines.push_back(fmt::format("offload_optimizer: the states of {} of {} weights stay on the device",
                                residents.states, residents.weights));
  }
  return lines;
}

}  // namespace heddle
