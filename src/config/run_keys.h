#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "config/run_config.h"
#include "config/value_rule.h"

namespace heddle {

/// One row of the run file's table: it drives reading, checking, the effective configuration and docs/run-file.md.
struct RunKey {
  std::string_view name;  // "max_steps", "lora.r"
  ValueRule rule;
  std::string_view fallback;               // the default, as JSON
  void (*store)(RunConfig&, const Json&);  // null: rules between keys decide what the config gets
  std::string_view only;                   // the values that this version has, joined with |; empty: all
  std::string_view documentation;          // one line
};

struct RunSubject {
  std::string_view name;  // "steps"
  std::span<const RunKey> keys;
};

/// All keys by subject, in the order of the documentation.
std::span<const RunSubject> run_subjects();
/// Null for an unknown name.
const RunKey* find_run_key(std::string_view name);
/// Names of one level: all without a dot for "", those below "lora." for "lora".
std::vector<std::string_view> run_key_names(std::string_view section);

/// A value and where it comes from.
struct Setting {
  Json value;
  std::string origin = "default";  // "run.yaml:14", "command line", "launcher", "deepspeed (ds.json:3)", ...
  bool is_set = false;             // by the user; a default is not set
};

/// The settings of a run by key.
class RunSettings {
 public:
  /// Every key at its default.
  RunSettings();
  Setting& at(std::string_view key);
  const Setting& at(std::string_view key) const;
  const std::map<std::string, Setting, std::less<>>& all() const { return settings_; }
  double number(std::string_view key) const { return at(key).value.get<double>(); }
  std::int64_t whole(std::string_view key) const { return at(key).value.get<std::int64_t>(); }
  /// Adds a key that is not in the table (those below `deepspeed`).
  void add(const std::string& key, Setting setting) { settings_[key] = std::move(setting); }

 private:
  std::map<std::string, Setting, std::less<>> settings_;
};

/// Ranks that see different rows: ranks / (tensor_parallel x pipeline_parallel x context_parallel). Throws Error if
/// that is no whole number.
std::int64_t data_parallel_ranks(const RunSettings& settings);

/// What to say of the first key whose value this version does not have; empty if it has all of them.
std::string find_unsupported(const RunSettings& settings);

/// True if `value`, as JSON without quotes, is one of the |-joined `only`, or if `only` is empty.
bool is_among(const Json& value, std::string_view only);

/// A value as an error or a table shows it: text without quotes.
std::string plain_text(const Json& value);

}  // namespace heddle
