#pragma once

#include "comm/communicator.h"
#include "train/activations.h"
#include "train/run_setup.h"

namespace heddle {

/// Compiles the run for this rank, with all ranks: where `recompute` is `auto`, they decide together what becomes of
/// the activations, and in any case what stays of what is offloaded (residency.h), and `run` gets it. `weights`: as of
/// compile_run(). Throws Error for a run that does not keep its budgets or the memory that there is, before anything is
/// read.
CompiledRun compile_fitting(RunConfig& run, const ModelSource& model, const WeightFiles* weights, const RunData& data,
                            const ActivationChooser& choose, Communicator& communicator);

}  // namespace heddle
