#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/value_rule.h"

namespace heddle {

/// One row of the table of DeepSpeed's JSON keys.
struct DeepSpeedKey {
  /// What "auto" becomes.
  enum class Auto {
    none,     // it is not a value here
    run_key,  // the value of the run file's key
    rule,     // by a rule of its own: the batch triple, the schedule, what depends on the model's hidden size
  };
  enum class Effect {
    honoured,
    none,     // accepted, and yet it changes nothing
    refused,  // but for the values of `only`; a section, unless it is turned off
  };
  std::string_view path;  // "zero_optimization.stage"; objects have a row too
  ValueRule rule = {};
  std::string_view run_key = {};  // the run file's key that says the same: both must agree
  Auto automatic = Auto::none;
  Effect effect = Effect::honoured;
  std::string_view only = {};  // joined with |
  std::string_view why = {};   // of Effect::none and Effect::refused
  bool is_free_form = false;   // an object whose keys are not in the table
};

std::span<const DeepSpeedKey> deepspeed_keys();
/// Null for an unknown path.
const DeepSpeedKey* find_deepspeed_key(std::string_view path);
/// The names directly below an object ("" for the root).
std::vector<std::string_view> deepspeed_names(std::string_view section);

/// A key's name of former versions, and what it became.
struct DeepSpeedRename {
  std::string_view old_path, new_path;
  bool is_switch = false;  // a bool that became a device: true is "cpu", false "none"
};
std::span<const DeepSpeedRename> deepspeed_renames();

}  // namespace heddle
