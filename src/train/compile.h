#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/run_config.h"
#include "models/model_config.h"
#include "program/builder.h"
#include "program/passes/passes.h"

namespace heddle {

/// Capacities of the programs, from the data or from the run file's limits.
struct StreamCapacity {
  std::int64_t tokens = 0, documents = 0;
};

/// All programs of a run, allocated together.
struct CompiledRun {
  Parameters parameters;
  DType activation_type = DType::f32;
  std::vector<StepProgram> programs;
  MemoryPlan plan;
  // Indices into programs; -1 where the run has none.
  int micro_batch = -1, norm = -1, update = -1, evaluate = -1, generate = -1;
  int threads = 1;

  std::vector<const StepProgram*> program_list() const;
};

DType activation_type(Precision precision);

/// Threads that a run uses: the run file's, or all cores of the process.
int threads_of(const RunConfig& run);

/// Programs of a training run: forward and backward of a micro-batch, gradient norm, optimizer, and evaluation where
/// there is validation data. `max_length` is the longest document in positions.
CompiledRun compile_training(const ModelConfig& model, const RunConfig& run, StreamCapacity train,
                             std::optional<StreamCapacity> validation);

/// Forward alone, with the loss.
CompiledRun compile_evaluation(const ModelConfig& model, DType activation, StreamCapacity capacity,
                               std::int64_t max_length, int threads);

/// Forward of up to `prompt_tokens` at a time over a key-value cache of `cache_positions`, to the logits of the last
/// token.
CompiledRun compile_generation(const ModelConfig& model, DType activation, std::int64_t prompt_tokens,
                               std::int64_t cache_positions, int threads);

}  // namespace heddle
