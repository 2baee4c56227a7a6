#include "train/weight_groups.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/text.h"

namespace heddle {
namespace {

bool matches_name(const std::string& pattern, const std::string& name) {
  if (fnmatch(pattern.c_str(), name.c_str(), 0) == 0) return true;
  for (auto dot = name.rfind('.'); dot != std::string::npos && dot > 0; dot = name.rfind('.', dot - 1)) {
    if (fnmatch(pattern.c_str(), name.substr(0, dot).c_str(), 0) == 0) return true;
  }
  return false;
}

bool matches(const std::string& pattern, const NamedWeight& weight) {
  return std::any_of(weight.names.begin(), weight.names.end(),
                     [&](const auto& name) { return matches_name(pattern, name); });
}

bool matches_any(const std::vector<std::string>& patterns, const NamedWeight& weight) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const auto& pattern) { return matches(pattern, weight); });
}

/// Names of tensors and of the modules above them; a name's end alone is known too, as "*.END".
std::string nearest(const std::string& pattern, const std::vector<NamedWeight>& weights) {
  std::set<std::string> names, ends;
  for (const auto& weight : weights) {
    for (std::string name : weight.names) {
      while (true) {
        names.insert(name);
        const auto dot = name.rfind('.');
        ends.insert(name.substr(dot + 1));  // npos + 1 is 0
        if (dot == std::string::npos) break;
        name.resize(dot);
      }
    }
  }
  if (ends.contains(pattern)) return fmt::format("; did you mean *.{}?", pattern);
  return did_you_mean(pattern, std::vector<std::string_view>(names.begin(), names.end()));
}

void require_names(const std::string& key, const std::vector<std::string>& patterns,
                   const std::vector<NamedWeight>& weights) {
  for (const auto& pattern : patterns) {
    if (std::none_of(weights.begin(), weights.end(), [&](const auto& weight) { return matches(pattern, weight); }))
      fail("{}: {} names no weight of the model{}", key, pattern, nearest(pattern, weights));
  }
}

WeightTreatment treatment_of(const ParamGroup& group, const RunConfig& run) {
  WeightTreatment treatment{.weight_decay = group.weight_decay};
  if (group.learning_rate) treatment.learning_rate_scale = *group.learning_rate / run.learning_rate;
  if (group.lr_scale) treatment.learning_rate_scale = *group.lr_scale;
  return treatment;
}

}  // namespace

WeightGroups::WeightGroups(const RunConfig& run, const std::vector<NamedWeight>& weights) {
  require_names("freeze", run.freeze, weights);
  require_names("train_only", run.train_only, weights);
  bool trains_any = false;
  std::vector<bool> has_own(run.param_groups.size(), false);
  for (const auto& weight : weights) {
    if (!weight.is_trained) continue;
    if (matches_any(run.freeze, weight) || (!run.train_only.empty() && !matches_any(run.train_only, weight))) {
      treatments_.emplace(weight.weight, WeightTreatment{.is_trainable = false});
      continue;
    }
    trains_any = true;
    const auto found = std::find_if(run.param_groups.begin(), run.param_groups.end(),
                                    [&](const ParamGroup& group) { return matches_any(group.params, weight); });
    if (found == run.param_groups.end()) continue;
    has_own[static_cast<std::size_t>(found - run.param_groups.begin())] = true;
    treatments_.emplace(weight.weight, treatment_of(*found, run));
  }
  if (!trains_any) fail("freeze leaves no weight to train");
  for (std::size_t i = 0; i < run.param_groups.size(); ++i) {
    const std::string key = fmt::format("param_groups[{}].params", i);
    require_names(key, run.param_groups[i].params, weights);
    if (!has_own[i]) fail("{}: all that it names is frozen, or in a group before", key);
  }
}

bool WeightGroups::trains(const std::string& weight) const {
  const auto found = treatments_.find(weight);
  return found == treatments_.end() || found->second.is_trainable;
}

WeightTreatment WeightGroups::treatment(const std::string& weight) const {
  const auto found = treatments_.find(weight);
  return found == treatments_.end() ? WeightTreatment{} : found->second;
}

}  // namespace heddle
