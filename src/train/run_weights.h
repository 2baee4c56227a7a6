#pragma once

#include <memory>
#include <string>

#include "train/run_setup.h"
#include "train/weights.h"

namespace heddle {

/// Where the weights of a compiled model come from: the base's files or fresh ones, and an adapter's beside them. What
/// the files hold is compared with the model when this is made, before any weight is read.
class RunWeights {
 public:
  /// `files`: open_weights() of a model that has some, else null.
  RunWeights(const ModelSource& model, std::unique_ptr<WeightFiles> files, const CompiledRun& compiled);

  /// How what the run trains is laid out when it is exported: the model's files, or the adapter's.
  const WeightSource& exported() const { return adapter_ ? exported_ : base_source_; }
  /// Fills everything that this rank holds.
  void load(const CompiledRun& compiled, std::uint64_t seed, Executor& executor) const;
  /// Fills what checkpoints leave out: the weights that are not trained.
  void load_frozen(const CompiledRun& compiled, std::uint64_t seed, Executor& executor) const;
  /// The base's files; null for a model from scratch.
  const WeightFiles* base() const { return base_.get(); }
  /// weights_digest() of them; empty for a model from scratch.
  std::string base_digest() const;

 private:
  void load_base(const WeightSource& source, const CompiledRun& compiled, std::uint64_t seed, Executor& executor) const;

  std::unique_ptr<WeightFiles> base_, adapter_files_;  // null: fresh
  bool adapter_ = false;
  WeightSource base_source_, adapter_source_;
  WeightSource exported_;  // of an adapter: its source, and a second name of what is tied
};

}  // namespace heddle
