#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/run_config.h"
#include "formats/json.h"
#include "planner/hardware.h"
#include "planner/step_cost.h"
#include "train/activations.h"
#include "train/compile.h"

namespace heddle {

/// Keys of the run file with values that are not the run's: {"recompute", "full"}.
using Settings = std::vector<std::pair<std::string, std::string>>;

/// The run with other settings, compiled.
struct Alternative {
  Settings settings;
  std::uint64_t peak = 0, host_peak = 0, nvme_peak = 0;  ///< bytes of a rank
  StepCost cost;
};

/// Whether a run fits into a budget, and what would make it fit.
struct Fit {
  Device device;
  bool is_named = true;  ///< false: budgets of the run file are all that is known, and `device` lends its rates
  int ranks = 1;
  MemoryLimits limits;
  Alternative run;                        ///< as it is
  std::vector<Alternative> alternatives;  ///< where it does not fit: those that do, the fastest first
  Alternative smallest;                   ///< what lacks the least, of all that were tried
  std::int64_t tried = 0;                 ///< alternatives that were compiled
  std::int64_t largest_batch = 0;         ///< per_device_train_batch_size that fits; 0: not even 1
  bool is_largest_searched = false;       ///< larger ones were not tried

  /// Bytes that it needs beyond the limits; 0 or less: it fits.
  std::int64_t excess(const Alternative& alternative) const;
  bool fits() const { return excess(run) <= 0; }
  /// Whether what binds the run is the limit of device and host memory together.
  bool is_bound_by_total() const;
};

/// Changes one setting, else two, else three at a time; a combination in which a smaller one fits already is left out.
/// What is offloaded goes to host memory, or to nvme, where host and device memory together are too little for that.
/// Where `recompute` is among those that fit, `compile` is asked for `auto` too, which it has to decide.
/// The batch size is found by bisection up to `most_rows`, as memory grows with it.
Fit find_fit(const RunConfig& run, const CompileVariant& compile, const Device& device, const MemoryLimits& limits,
             std::int64_t most_rows);

std::string fit_text(const Fit& fit);
/// The keys "hardware" and "fit" of `heddle plan --json`.
void add_fit(Json& document, const Fit& fit);

}  // namespace heddle
