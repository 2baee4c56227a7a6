#include "config/schedule_names.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "config/value_rule.h"

namespace heddle {
namespace {

using Argument = ScheduleArgument;
using Kind = ScheduleArgument::Kind;
using namespace std::string_view_literals;

constexpr std::array kShapes = {"linear"sv, "cosine"sv, "1-sqrt"sv};
constexpr std::array kRises = {"log"sv, "linear"sv};

// transformers/optimization.py, get_scheduler
constexpr std::array kCosine = {Argument{"num_cycles"}};
constexpr std::array kRestarts = {Argument{"num_cycles", Kind::whole, 1}};
constexpr std::array kMinLr = {Argument{"num_cycles"}, Argument{"min_lr"}, Argument{"min_lr_rate"}};
constexpr std::array kWarmupMinLr = {Argument{"num_cycles"}, Argument{"min_lr"}, Argument{"min_lr_rate"},
                                     Argument{"warmup_lr_rate"}};
constexpr std::array kPolynomial = {Argument{"lr_end"}, Argument{"power"}};
constexpr std::array kInverseSqrt = {Argument{"timescale", Kind::whole, 1}};
constexpr std::array kStable = {Argument{"num_decay_steps", Kind::whole, 0, {}, true},
                                Argument{"num_stable_steps", Kind::whole},
                                Argument{"warmup_type", Kind::word, 0, kShapes},
                                Argument{"decay_type", Kind::word, 0, kShapes},
                                Argument{"min_lr_ratio"},
                                Argument{"num_cycles"}};

// https://www.deepspeed.ai/docs/config-json and deepspeed.readthedocs.io/en/latest/schedulers.html
constexpr std::array kWarmupLr = {
    Argument{"warmup_min_lr"}, Argument{"warmup_max_lr"}, Argument{"warmup_num_steps", Kind::whole},
    Argument{"warmup_type", Kind::word, 0, kRises}, Argument{"last_batch_iteration", Kind::whole, -1, {}, false, "-1"}};
constexpr std::array kWarmupDecay = {Argument{"total_num_steps", Kind::whole, 1},
                                     Argument{"warmup_min_lr"},
                                     Argument{"warmup_max_lr"},
                                     Argument{"warmup_num_steps", Kind::whole},
                                     Argument{"warmup_type", Kind::word, 0, kRises},
                                     Argument{"last_batch_iteration", Kind::whole, -1, {}, false, "-1"}};
constexpr std::array kWarmupCosine = {
    Argument{"total_num_steps", Kind::whole, 1},    Argument{"warmup_min_ratio"},
    Argument{"warmup_num_steps", Kind::whole},      Argument{"cos_min_ratio"},
    Argument{"warmup_type", Kind::word, 0, kRises}, Argument{"last_batch_iteration", Kind::whole, -1, {}, false, "-1"}};
constexpr std::array kOneCycle = {Argument{"cycle_min_lr", Kind::number, 0, {}, true},
                                  Argument{"cycle_max_lr", Kind::number, 0, {}, true},
                                  Argument{"decay_lr_rate"},
                                  Argument{"cycle_first_step_size", Kind::whole, 1},
                                  Argument{"cycle_second_step_size", Kind::whole, 1},
                                  Argument{"cycle_first_stair_count", Kind::whole, 0, {}, false, "0"},
                                  Argument{"cycle_second_stair_count", Kind::whole, 0, {}, false, "0"},
                                  Argument{"decay_step_size", Kind::whole},
                                  Argument{"cycle_momentum", Kind::flag, 0, {}, false, "false"},
                                  Argument{"cycle_min_mom"},
                                  Argument{"cycle_max_mom"},
                                  Argument{"decay_mom_rate"},
                                  Argument{"last_batch_iteration", Kind::whole, -1, {}, false, "-1"}};
constexpr std::array kRangeTest = {Argument{"lr_range_test_min_lr"},
                                   Argument{"lr_range_test_step_size", Kind::whole, 1},
                                   Argument{"lr_range_test_step_rate"}, Argument{"lr_range_test_staircase", Kind::flag},
                                   Argument{"last_batch_iteration", Kind::whole, -1, {}, false, "-1"}};

constexpr auto kFollowsLoss = "it follows the evaluation loss, and this version has fixed schedules only"sv;

constexpr std::array kTypes = {
    ScheduleType{"linear"},
    ScheduleType{"cosine", false, true, kCosine},
    ScheduleType{"cosine_with_restarts", false, true, kRestarts},
    ScheduleType{"polynomial", false, true, kPolynomial},
    ScheduleType{"constant", false, false},
    ScheduleType{"constant_with_warmup"},
    ScheduleType{"inverse_sqrt", false, true, kInverseSqrt},
    ScheduleType{"cosine_with_min_lr", false, true, kMinLr},
    ScheduleType{"cosine_warmup_with_min_lr", false, true, kWarmupMinLr},
    ScheduleType{"warmup_stable_decay", false, true, kStable},
    ScheduleType{"reduce_lr_on_plateau", false, false, {}, kFollowsLoss},
    ScheduleType{"greedy", false, false, {}, kFollowsLoss},
    ScheduleType{"WarmupLR", true, false, kWarmupLr},
    ScheduleType{"WarmupDecayLR", true, false, kWarmupDecay},
    ScheduleType{"WarmupCosineLR", true, false, kWarmupCosine},
    ScheduleType{"OneCycle", true, false, kOneCycle},
    ScheduleType{"LRRangeTest", true, false, kRangeTest},
};

/// Checks the value of a given argument against its kind and range.
void check_argument(const Argument& argument, const ScheduleConfig& schedule, const std::string& key,
                    const std::string& where) {
  const std::string name(argument.name);
  const auto number = schedule.numbers.find(name);
  const auto word = schedule.words.find(name);
  const bool is_text = argument.kind == Kind::word || argument.kind == Kind::flag;
  std::string found;
  if (is_text) {
    if (word == schedule.words.end()) fail("{}{} is {}; expected text", where, key, number_text(number->second));
    found = word->second;
    constexpr std::array kFlags = {"true"sv, "false"sv};
    const auto words = argument.kind == Kind::flag ? std::span<const std::string_view>(kFlags) : argument.words;
    if (std::find(words.begin(), words.end(), found) == words.end()) {
      fail("{}{} is \"{}\"; expected {}", where, key, found, join_choices(words));
    }
  } else {
    if (number == schedule.numbers.end()) fail("{}{} is \"{}\"; expected a number", where, key, word->second);
    const double value = number->second;
    found = number_text(value);
    const bool is_whole = value == std::floor(value) && std::abs(value) <= 0x1p53;
    if (argument.kind == Kind::whole && !is_whole) fail("{}{} is {}; expected a whole number", where, key, found);
    if (!std::isfinite(value) || !(value >= argument.least)) {
      fail("{}{} is {}; expected at least {}", where, key, found, number_text(argument.least));
    }
  }
  if (!argument.only.empty() && found != argument.only) {
    fail("{}{} is {}: this version does not have it; expected {}", where, key, found, argument.only);
  }
}

bool has(const ScheduleConfig& schedule, std::string_view name) {
  const std::string key(name);
  return schedule.numbers.contains(key) || schedule.words.contains(key);
}

void check_names(const ScheduleType& type, const ScheduleConfig& schedule, const std::string& where,
                 const std::string& prefix) {
  std::vector<std::string_view> known;
  for (const auto& argument : type.arguments) known.push_back(argument.name);
  const auto check = [&](const std::string& name) {
    if (std::find(known.begin(), known.end(), name) != known.end()) return;
    fail("{}unknown key {}{} for {}, which takes {}{}", where, prefix, name, type.name,
         known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")), did_you_mean(name, known));
  };
  for (const auto& [name, value] : schedule.numbers) check(name);
  for (const auto& [name, value] : schedule.words) check(name);
}

/// Rules between arguments, and against the learning rate.
void check_together(const ScheduleConfig& schedule, double learning_rate, const std::string& where,
                    const std::string& prefix) {
  const auto& numbers = schedule.numbers;
  if (schedule.type == "cosine_with_min_lr" || schedule.type == "cosine_warmup_with_min_lr") {
    const bool has_rate = numbers.contains("min_lr_rate");
    if (numbers.contains("min_lr") && has_rate)
      fail("{0}{1}min_lr and {1}min_lr_rate exclude each other", where, prefix);
    if (!numbers.contains("min_lr") && !has_rate) {
      fail("{0}{1} needs {2}min_lr or {2}min_lr_rate", where, schedule.type, prefix);
    }
  }
  if (schedule.type == "polynomial") {
    const double end = numbers.contains("lr_end") ? numbers.at("lr_end") : 1e-7;
    if (!(end < learning_rate)) {
      fail("{}{}lr_end is {}; expected less than learning_rate, {}", where, prefix, end, learning_rate);
    }
  }
  if (schedule.type == "OneCycle") {
    if (numbers.at("cycle_min_lr") > numbers.at("cycle_max_lr")) {
      fail("{0}{1}cycle_min_lr is {2}; expected at most {1}cycle_max_lr, {3}", where, prefix,
           numbers.at("cycle_min_lr"), numbers.at("cycle_max_lr"));
    }
  }
}

}  // namespace

std::span<const ScheduleType> schedule_types() { return kTypes; }

const ScheduleType* find_schedule_type(std::string_view name, bool deepspeed) {
  const auto at = std::find_if(kTypes.begin(), kTypes.end(), [&](const ScheduleType& type) {
    return type.name == name && type.is_deepspeed == deepspeed;
  });
  return at == kTypes.end() ? nullptr : &*at;
}

void check_schedule(const ScheduleConfig& schedule, double learning_rate, const std::string& where,
                    const std::string& type_key, const std::string& arguments_key) {
  const std::string start = where.empty() ? "" : where + ": ";
  const auto* type = find_schedule_type(schedule.type, schedule.deepspeed);
  if (type == nullptr) {
    std::vector<std::string_view> names;
    for (const auto& known : kTypes) {
      if (known.is_deepspeed == schedule.deepspeed && known.refusal.empty()) names.push_back(known.name);
    }
    const auto hint = did_you_mean(schedule.type, names);
    fail("{}{} is \"{}\"; expected {}{}", start, type_key, schedule.type, join_choices(names), hint);
  }
  if (!type->refusal.empty()) fail("{}{} is {}: {}", start, type_key, schedule.type, type->refusal);
  const std::string prefix = arguments_key + ".";
  check_names(*type, schedule, start, prefix);
  for (const auto& argument : type->arguments) {
    if (has(schedule, argument.name)) {
      check_argument(argument, schedule, prefix + std::string(argument.name), start);
    } else if (argument.is_required) {
      fail("{}{} needs {}{}", start, schedule.type, prefix, argument.name);
    }
  }
  check_together(schedule, learning_rate, start, prefix);
}

}  // namespace heddle
