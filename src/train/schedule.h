#pragma once

#include <cstdint>

#include "config/run_config.h"

namespace heddle {

/// Learning rate of optimizer step `step` (from 0: the schedule's value after that many steps were done), as
/// transformers.get_scheduler and DeepSpeed's documentation define it. `total_steps` is the run's max_steps.
/// The schedule has passed check_schedule (config/schedule_names.h).
double learning_rate_at(const ScheduleConfig& schedule, double learning_rate, std::int64_t step,
                        std::int64_t total_steps);

/// Steps of warm-up: warmup_steps, or else warmup_ratio of the total rounded up.
std::int64_t warmup_steps(const ScheduleConfig& schedule, std::int64_t total_steps);

}  // namespace heddle
