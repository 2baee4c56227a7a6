#pragma once

#include <vector>

#include "planner/hardware.h"
#include "train/activations.h"

namespace heddle {

/// What `recompute: auto` decides: for each block, whether its activations are kept, rebuilt in part or whole, and
/// where offload_activations names a tier, whether what is kept goes there; at the least time of a step
/// (estimate_step on `device`) whose plan keeps the limits. Where none does: what lacks the least.
///
/// The problem is Checkmate's (Jain et al. 2020, arXiv:1910.02653) with offload as in Beaumont, Eyraud-Dubois and
/// Shilova 2021 ("Efficient Combination of Rematerialization and Offloading for Training DNNs", NeurIPS), over the
/// modes that Korthikanti et al. 2022 (arXiv:2205.05198) compare. With one mode for each of L like blocks it is a
/// multiple-choice knapsack, whose relaxed optimum mixes two modes (Sinha, Zoltners 1979). So for each pair of modes
/// the least number of first blocks in the smaller one is found, then the last of these gets the fastest mode that
/// fits: at most the time of one block's mode above the optimum. First blocks come first since their activations live
/// longest. Bytes are never estimated: each candidate is compiled and its plan, the one that would run, compared.
std::vector<BlockActivations> choose_activations(const RunConfig& run, const CompileVariant& compile,
                                                 const MemoryLimits& limits, const Device& device);
/// The same by the rates of nominal_cpu(): what a run on this or any processor chooses.
std::vector<BlockActivations> choose_activations_for_training(const RunConfig& run, const CompileVariant& compile,
                                                              const MemoryLimits& limits);

}  // namespace heddle
