#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "config/run_config.h"
#include "data/dataset.h"
#include "models/model_config.h"
#include "train/compile.h"

namespace heddle {

/// "134,515,008 parameters, bf16, 2 ranks over mpi, ZeRO stage 1"
std::string size_and_layout(const RunConfig& run, const Parameters& parameters, std::string_view transport);

/// What a run says before its first step: its size and what it holds in each tier, and warnings of what its
/// configuration cannot mean.
void announce(const RunConfig& run, const ModelConfig& model, const CompiledRun& compiled, const Dataset& train,
              std::int64_t total_steps, std::string_view transport);

}  // namespace heddle
