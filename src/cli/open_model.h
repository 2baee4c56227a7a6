#pragma once

#include "train/executor.h"
#include "train/run_setup.h"

namespace heddle::cli {

/// A compiled model with its weights in memory, for the commands that only run it. `compiled` must outlive it.
struct LoadedModel {
  LoadedModel(const ModelSource& model, const CompiledRun& compiled);
  Executor executor;
};

/// How its weights are treated: as they come, with the adapter that it may have. Throws Error for a model without
/// weights.
WeightRules rules_of(const ModelSource& model);

/// fp32 unless one of the two is asked for. Throws UsageError for both.
DType chosen_type(bool bf16, bool fp16);

}  // namespace heddle::cli
