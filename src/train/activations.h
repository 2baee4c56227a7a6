#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "formats/json.h"
#include "program/passes/passes.h"
#include "train/compile.h"
#include "train/memory_limits.h"

namespace heddle {

/// What `recompute`, `recompute_every`, `offload_activations` and RunConfig::block_activations ask of a program's
/// units. Units that are no blocks go with the first block. Throws Error where `recompute: auto` is undecided.
struct UnitActivations {
  std::vector<RecomputeMode> recompute;
  std::vector<bool> stay;  ///< on the device, whatever offload_activations says
};
UnitActivations unit_activations(const RunConfig& run, const StepProgram& program);

/// What these keys ask of a block where RunConfig::block_activations says nothing. Throws Error as unit_activations().
BlockActivations activations_of(const RunConfig& run, std::size_t block);
/// What RunConfig::block_activations were decided by: "recompute: auto", "offload_activations: nvme".
std::string activations_key(const RunConfig& run);

/// Whether a unit is one of the model's repeated blocks.
bool is_block(const std::string& unit);

/// Compiles the run with other settings; all ranks get plans with the same peaks. Throws Error where it cannot be.
using CompileVariant = std::function<CompiledRun(const RunConfig&)>;

/// Decides RunConfig::block_activations where `recompute` is `auto`: the fastest that keep the limits, or where none
/// do, those that lack the least. A pure function of its arguments, so that all ranks decide alike.
using ActivationChooser =
    std::function<std::vector<BlockActivations>(const RunConfig&, const CompileVariant&, const MemoryLimits&)>;

/// "full", "none, offloaded".
std::string activations_name(const BlockActivations& activations);
/// "blocks 0-11 full, 12-15 none".
std::string activations_text(const std::vector<BlockActivations>& blocks);
/// A name for each block.
Json activations_document(const std::vector<BlockActivations>& blocks);

}  // namespace heddle
