#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/run_config.h"

namespace heddle {

/// An argument of a schedule: a key of lr_scheduler_kwargs, or of DeepSpeed's scheduler.params.
struct ScheduleArgument {
  enum class Kind { number, whole, flag, word };
  std::string_view name;
  Kind kind = Kind::number;
  double least = 0;
  std::span<const std::string_view> words = {};  // of Kind::word
  bool is_required = false;
  std::string_view only = {};  // the one value that is accepted, where the argument is known but its effect is not here
};

struct ScheduleType {
  std::string_view name;
  bool is_deepspeed = false;
  bool has_warmup = true;  // warmup_steps and warmup_ratio have an effect
  std::span<const ScheduleArgument> arguments = {};
  std::string_view refusal = {};  // why the name is known and yet refused
};

std::span<const ScheduleType> schedule_types();
/// Null for an unknown name.
const ScheduleType* find_schedule_type(std::string_view name, bool deepspeed);

/// Throws Error for an unknown type or argument, a missing one, or a value out of range. `type_key` and `arguments_key`
/// are the keys that errors name ("lr_scheduler_type" and "lr_scheduler_kwargs", "deepspeed.scheduler.type" and
/// "deepspeed.scheduler.params"); `where` starts the message.
void check_schedule(const ScheduleConfig& schedule, double learning_rate, const std::string& where,
                    const std::string& type_key, const std::string& arguments_key);

}  // namespace heddle
