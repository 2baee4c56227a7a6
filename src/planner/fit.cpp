#include "planner/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"

namespace heddle {
namespace {

constexpr std::size_t kMostSettings = 3;
/// Of the combinations that do not fit, so many that lack the least are extended to three settings.
constexpr std::size_t kExtended = 6;

/// What one thing that a run can choose is changed to. Changes of one aspect exclude each other.
struct Change {
  enum class Aspect { recompute, mlp, sharding, optimizer, activations, parameters, precision, batch } aspect;
  Settings settings;
  std::function<void(RunConfig&)> apply;
};

/// All that the run has not chosen already and that saves memory beside what it has; what is offloaded goes to `place`.
std::vector<Change> changes_of(const RunConfig& run, const Device& device, OffloadDevice place) {
  using Aspect = Change::Aspect;
  std::vector<Change> changes;
  for (const auto& [name, mode] : {std::pair{"selective", Recompute::selective}, std::pair{"full", Recompute::full}}) {
    if (mode > run.recompute)
      changes.push_back({Aspect::recompute, {{"recompute", name}}, [m = mode](RunConfig& r) { r.recompute = m; }});
  }
  if (!run.tiled_mlp)
    changes.push_back({Aspect::mlp, {{"tiled_mlp", "true"}}, [](RunConfig& r) { r.tiled_mlp = true; }});
  for (int stage = run.zero_stage + 1; run.ranks > 1 && stage <= 3; ++stage) {
    changes.push_back({Aspect::sharding, {{"zero_stage", fmt::format("{}", stage)}}, [stage](RunConfig& r) {
                         r.zero_stage = stage;
                       }});
  }
  const char* place_name = place == OffloadDevice::nvme ? "nvme" : "cpu";
  const auto offload = [&](Aspect aspect, const char* key, OffloadDevice RunConfig::*member) {
    if (run.*member >= place) return;
    changes.push_back({aspect, {{key, place_name}}, [member, place](RunConfig& r) { r.*member = place; }});
  };
  if (place == OffloadDevice::nvme && run.offload_gradients != place) {
    if (run.offload_optimizer != place) {
      changes.push_back({Aspect::optimizer, {{"offload_gradients", place_name}}, [place](RunConfig& r) {
                           r.offload_gradients = place;
                         }});
    }
    Settings settings = {{"offload_gradients", place_name}};
    if (run.offload_optimizer != place) settings.insert(settings.begin(), {"offload_optimizer", place_name});
    changes.push_back({Aspect::optimizer, std::move(settings),
                       [place](RunConfig& r) { r.offload_optimizer = r.offload_gradients = place; }});
  }
  offload(Aspect::optimizer, "offload_optimizer", &RunConfig::offload_optimizer);
  offload(Aspect::activations, "offload_activations", &RunConfig::offload_activations);
  offload(Aspect::parameters, "offload_param", &RunConfig::offload_param);
  if (run.precision == Precision::fp32) {
    const Precision half = device.has_bf16 ? Precision::bf16 : Precision::fp16;
    changes.push_back({Aspect::precision, {{device.has_bf16 ? "bf16" : "fp16", "true"}}, [half](RunConfig& r) {
                         r.precision = half;
                       }});
  }
  if (const std::int64_t rows = run.per_device_train_batch_size; rows % 2 == 0) {
    const std::int64_t accumulation = run.gradient_accumulation_steps * 2;
    changes.push_back({Aspect::batch,
                       {{"per_device_train_batch_size", fmt::format("{}", rows / 2)},
                        {"gradient_accumulation_steps", fmt::format("{}", accumulation)}},
                       [rows, accumulation](RunConfig& r) {
                         r.per_device_train_batch_size = rows / 2;
                         r.gradient_accumulation_steps = accumulation;
                       }});
  }
  return changes;
}

Alternative compile_alternative(const RunConfig& run, const CompileVariant& compile, const Device& device) {
  const CompiledRun compiled = compile(run);
  return {{},
          compiled.plan.device.peak,
          compiled.plan.host.peak,
          compiled.plan.nvme.peak,
          estimate_step(compiled, run.gradient_accumulation_steps, device)};
}

using Combination = std::vector<std::size_t>;  // indices of changes, ascending

class FitSearch {
 public:
  FitSearch(const RunConfig& run, const CompileVariant& compile, OffloadDevice place, Fit& fit)
      : run_(run), compile_(compile), fit_(fit), changes_(changes_of(run, fit.device, place)) {}

  void find_alternatives() {
    std::vector<Combination> open = {{}};
    for (std::size_t size = 1; size <= kMostSettings && !open.empty(); ++size) {
      // More than two at a time only where nothing simpler fits.
      if (size > 2 && !fit_.alternatives.empty()) break;
      open = size > 2 ? extend_smallest(std::move(open)) : extend(open);
    }
    add_automatic();
    std::ranges::stable_sort(fit_.alternatives, [](const Alternative& a, const Alternative& b) {
      return std::pair(a.cost.seconds, a.peak) < std::pair(b.cost.seconds, b.peak);
    });
  }

 private:
  /// Tries every combination that has one more change; returns those that do not fit.
  std::vector<Combination> extend(const std::vector<Combination>& open) {
    std::vector<Combination> left;
    for (const Combination& combination : open) {
      for (std::size_t i = combination.empty() ? 0 : combination.back() + 1; i < changes_.size(); ++i)
        try_change(combination, i, left);
    }
    return left;
  }

  std::vector<Combination> extend_smallest(std::vector<Combination> open) {
    std::ranges::stable_sort(open, {}, [&](const Combination& c) { return excess_.at(c); });
    if (open.size() > kExtended) open.resize(kExtended);
    std::vector<Combination> left;
    for (const Combination& combination : open) {
      for (std::size_t i = 0; i < changes_.size(); ++i) try_change(combination, i, left);
    }
    return left;
  }

  void try_change(Combination combination, std::size_t change, std::vector<Combination>& left) {
    for (const std::size_t other : combination) {
      if (changes_[other].aspect == changes_[change].aspect) return;
    }
    combination.push_back(change);
    std::ranges::sort(combination);
    if (excess_.contains(combination) || contains_fitting(combination)) return;
    RunConfig variant = run_;
    for (const std::size_t i : combination) changes_[i].apply(variant);
    Alternative alternative;
    if (!plan(variant, alternative)) {
      excess_[combination] = INT64_MAX;
      left.push_back(std::move(combination));  // with one more it may be possible
      return;
    }
    add_settings(combination, alternative);
    excess_[combination] = fit_.excess(alternative);
    if (fit_.excess(alternative) < fit_.excess(fit_.smallest)) fit_.smallest = alternative;
    if (fit_.excess(alternative) <= 0) {
      fitting_.push_back(combination);
      fit_.alternatives.push_back(std::move(alternative));
    } else {
      left.push_back(std::move(combination));
    }
  }

  /// Where rebuilding makes it fit, `recompute: auto` beside the same settings rebuilds no more than it takes.
  void add_automatic() {
    const auto by_size = [](const Combination& a, const Combination& b) {
      return std::pair(a.size(), a) < std::pair(b.size(), b);
    };
    std::set<Combination, decltype(by_size)> others(by_size);
    for (Combination combination : fitting_) {
      const auto recomputes = [&](std::size_t i) { return changes_[i].aspect == Change::Aspect::recompute; };
      if (std::erase_if(combination, recomputes) > 0) others.insert(std::move(combination));
    }
    std::vector<Combination> done;
    for (const Combination& combination : others) {
      const auto is_part = [&](const Combination& smaller) { return std::ranges::includes(combination, smaller); };
      if (std::ranges::any_of(done, is_part)) continue;
      RunConfig variant = run_;
      for (const std::size_t i : combination) changes_[i].apply(variant);
      variant.recompute = Recompute::automatic;
      Alternative alternative;
      if (!plan(variant, alternative) || fit_.excess(alternative) > 0) continue;
      done.push_back(combination);
      if (is_known(alternative)) continue;
      alternative.settings = {{"recompute", "auto"}};
      add_settings(combination, alternative);
      fit_.alternatives.push_back(std::move(alternative));
    }
  }

  bool is_known(const Alternative& alternative) const {
    return std::ranges::any_of(fit_.alternatives, [&](const Alternative& other) {
      return other.peak == alternative.peak && other.host_peak == alternative.host_peak &&
             other.cost.seconds == alternative.cost.seconds;
    });
  }

  void add_settings(const Combination& combination, Alternative& alternative) const {
    for (const std::size_t i : combination) {
      const Settings& settings = changes_[i].settings;
      alternative.settings.insert(alternative.settings.end(), settings.begin(), settings.end());
    }
  }

  bool contains_fitting(const Combination& combination) const {
    return std::ranges::any_of(fitting_,
                               [&](const Combination& smaller) { return std::ranges::includes(combination, smaller); });
  }

  /// False where the settings do not go together.
  bool plan(const RunConfig& variant, Alternative& alternative) {
    try {
      alternative = compile_alternative(variant, compile_, fit_.device);
      ++fit_.tried;
    } catch (const Error&) {
      return false;
    }
    return true;
  }

  const RunConfig& run_;
  const CompileVariant& compile_;
  Fit& fit_;
  std::vector<Change> changes_;
  std::map<Combination, std::int64_t> excess_;
  std::vector<Combination> fitting_;
};

/// The most rows of a micro-batch that fit, by doubling and then bisection between one that fits and one that does not.
void find_largest_batch(const RunConfig& run, const CompileVariant& compile, std::int64_t most_rows, Fit& fit) {
  RunConfig variant = run;
  const auto fits = [&](std::int64_t rows) {
    variant.per_device_train_batch_size = rows;
    try {
      return fit.excess(compile_alternative(variant, compile, fit.device)) <= 0;
    } catch (const Error&) {  // more tokens than a micro-batch may have
      return false;
    }
  };
  std::int64_t low = 0, high = 1;  // low fits, high is not known to
  if (fit.fits()) {
    low = std::min(run.per_device_train_batch_size, most_rows);
    high = low * 2;
  }
  while (high <= most_rows && fits(high)) {
    low = high;
    high *= 2;
  }
  high = std::min(high, most_rows + 1);  // beyond most_rows nothing counts as fitting
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  fit.largest_batch = low;
  fit.is_largest_searched = low == most_rows;
}

}  // namespace

std::int64_t Fit::excess(const Alternative& alternative) const {
  return limits.excess(alternative.peak, alternative.host_peak);
}

bool Fit::is_bound_by_total() const { return run.host_peak > limits.total - limits.device; }

Fit find_fit(const RunConfig& run, const CompileVariant& compile, const Device& device, const MemoryLimits& limits,
             std::int64_t most_rows) {
  Fit fit;
  fit.device = device;
  fit.ranks = run.ranks;
  fit.limits = limits;
  fit.run = compile_alternative(run, compile, device);
  fit.smallest = fit.run;
  const auto search = [&](OffloadDevice place) { FitSearch(run, compile, place, fit).find_alternatives(); };
  if (!fit.fits()) {
    const bool lacks_total = fit.run.peak + fit.run.host_peak > limits.total;
    if (!lacks_total) search(OffloadDevice::cpu);
    if (fit.alternatives.empty()) search(OffloadDevice::nvme);
  }
  find_largest_batch(run, compile, most_rows, fit);
  return fit;
}

}  // namespace heddle
