#pragma once

#include <string>
#include <vector>

#include "train/activations.h"

namespace heddle {

/// What stays in memory all the same of what a run offloads, so that no more moves than has to. Every bit is the same
/// wherever it lies.
///
/// Activations (RunConfig::block_activations, where `recompute` leaves them undecided and the run names device_memory
/// or memory_budget): those of as many of the last blocks as fit, which live shortest.
///
/// Gradients that `offload_gradients: nvme` moves (RunConfig::resident_gradients): as many as fit into these budgets,
/// or where the run names none, into what it holds when all of them leave, since activations make room for gradients as
/// the backward goes.
///
/// Without memory_budget an eighth of the machine's free memory is left alone.
///
/// Found by bisection over whole plans; a run that does not fit with everything offloaded is left as it is. A pure
/// function of its arguments, so that all ranks decide alike.
void choose_residency(RunConfig& run, const CompileVariant& compile, const MemoryLimits& limits);

/// What was decided of a run, by `recompute: auto` and here: "offload_gradients: nvme: 12 of 272 gradients stay in
/// memory".
std::vector<std::string> decisions(const CompiledRun& compiled);

}  // namespace heddle
