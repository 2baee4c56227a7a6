#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "program/builder.h"

namespace heddle {

/// A weight with all the names by which a pattern may call it: of a tied one both.
struct NamedWeight {
  std::string weight;  ///< the model's name
  std::vector<std::string> names;
  bool is_trained = true;  ///< unless the run file freezes it
};

/// What `freeze`, `train_only` and `param_groups` make of each weight.
///
/// A pattern is a shell's (fnmatch: * and ? stand for dots too) of a tensor's whole name, or of a module's above it:
/// "model.layers.[01]" is all of two blocks, "*norm*" every norm.
class WeightGroups {
 public:
  /// Everything is trained alike.
  WeightGroups() = default;
  /// Throws Error for a pattern that names no weight, with the nearest name, for a group without a weight of its own,
  /// and where nothing is left to train.
  WeightGroups(const RunConfig& run, const std::vector<NamedWeight>& weights);

  bool trains(const std::string& weight) const;
  /// Of a weight that is trained.
  WeightTreatment treatment(const std::string& weight) const;

 private:
  std::map<std::string, WeightTreatment, std::less<>> treatments_;  // of weights that differ from the others
};

}  // namespace heddle
