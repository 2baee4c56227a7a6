#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/run_keys.h"

namespace heddle {

/// What a DeepSpeed JSON says that no key of the run file holds.
struct DeepSpeedOutcome {
  std::optional<ScheduleConfig> schedule;  // of its `scheduler` object
  std::string schedule_where;              // "ds.json:12"
  LossScaling loss_scaling;
  ZeroOptions zero;
  AioOptions aio;
  CurriculumConfig curriculum;
  std::map<std::string, std::vector<std::string>> without_effect;  // why -> keys that were given and change nothing
};

/// Reads a DeepSpeed JSON into the settings: each of its keys as `deepspeed.PATH`, with its newest name and no "auto"
/// left, and what it decides under the run file's own key. Throws Error for unknown keys, wrong types, contradictions
/// within it, a key that is refused, and for a key that the run file sets otherwise (a default of the run file is not
/// set).
DeepSpeedOutcome resolve_deepspeed(SourceNode root, RunSettings& settings);

}  // namespace heddle
