#pragma once

#include "config/run_config.h"
#include "ops/kernel.h"
#include "program/optimizer.h"
#include "program/passes/passes.h"

namespace heddle {

/// The run file's optimizer, with the defaults of its arguments.
OptimizerSettings optimizer_settings(const RunConfig& run);

/// What the run file adds to the loss and to embeddings in training.
Regularization regularization_of(const RunConfig& run);

/// Sets what optimizer step `update` (from 1; skipped ones do not count) reads.
void set_update(Scalars& scalars, const RunConfig& run, std::int64_t update, double learning_rate);

}  // namespace heddle
