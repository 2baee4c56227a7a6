#pragma once

#include <memory>

#include "train/executor.h"
#include "train/run_setup.h"

namespace heddle::cli {

/// A compiled model with its weights in memory, for the commands that only run it. `compiled` must outlive it.
struct LoadedModel {
  LoadedModel(const ModelSource& model, std::unique_ptr<WeightFiles> weights, const CompiledRun& compiled);
  Executor executor;
};

/// How a model's weights are treated: as they come, with the adapter that it may have.
WeightRules rules_of(const ModelSource& model, const WeightFiles& weights);

/// fp32 unless one of the two is asked for. Throws UsageError for both.
DType chosen_type(bool bf16, bool fp16);

}  // namespace heddle::cli
