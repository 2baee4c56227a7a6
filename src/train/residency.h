#pragma once

#include <string>
#include <vector>

#include "train/activations.h"

namespace heddle {

/// What stays in memory all the same of what a run offloads, so that no more moves than has to. Every bit is the same
/// wherever it lies.
///
/// Within the run's budgets (device_memory or memory_budget; of what goes to host memory, device_memory):
/// - gradients that `offload_gradients: nvme` moves (RunConfig::resident_gradients): as many as fit, or where there is
/// no
///   budget, as fit into what the run holds when all of them leave, since activations make room for gradients as the
///   backward goes;
/// - optimizer states and master weights (RunConfig::resident_states): of as many weights as fit;
/// - activations (RunConfig::block_activations, where `recompute: auto` has not decided them): of as many of the last
///   blocks, where they live shortest.
/// Without memory_budget an eighth of the machine's free memory is left alone.
///
/// Found by bisection over whole plans; a run that does not fit with everything offloaded is left as it is. A pure
/// function of its arguments, so that all ranks decide alike.
void choose_residency(RunConfig& run, const CompileVariant& compile, const MemoryLimits& limits);

/// What was decided of a run, by `recompute: auto` and here: "offload_gradients: nvme: 12 of 272 gradients stay in
/// memory".
std::vector<std::string> decisions(const CompiledRun& compiled);

}  // namespace heddle
