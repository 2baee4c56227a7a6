#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "models/model_config.h"
#include "program/builder.h"
#include "program/passes/passes.h"
#include "tiers/swap_transfers.h"
#include "train/weight_rules.h"

namespace heddle {

/// Capacities of the programs, from the data or from the run file's limits.
struct StreamCapacity {
  std::int64_t tokens = 0, documents = 0;
};

/// All programs of a run, allocated together.
struct CompiledRun {
  WeightRules rules;
  Parameters parameters;
  DType activation_type = DType::f32;
  std::vector<StepProgram> programs;
  MemoryPlan plan;
  // Indices into programs; -1 where the run has none.
  int micro_batch = -1, norm = -1, update = -1, evaluate = -1, generate = -1;
  /// Where weights are updated through the nvme tier, a step leaves these to the next, whose first micro-batch has its
  /// update within: update is then of the others, and streamed_update of what is left, before anything else is done.
  int streamed_update = -1, micro_batch_with_update = -1;
  int reference = -1, evaluation_reference = -1;  ///< log-probabilities of preference pairs, before the first step
  int threads = 1;
  Sharding sharding;
  std::vector<std::int64_t> cache_limits;           // generation: key_cache_limits of the model
  std::vector<BlockActivations> block_activations;  // the run's, where they were decided, and by which key
  std::string activations_key;
  /// How many weights are trained, in how many groups (gradient_groups()); and of how many the run's numbers of groups
  /// keep gradients (of offload_gradients nvme) and states in memory.
  struct Residents {
    std::size_t weights = 0, groups = 0, groups_of_several_units = 0, gradients = 0, states = 0;
  } residents;

  std::vector<const StepProgram*> program_list() const;
};

DType activation_type(Precision precision);

/// Threads that a run uses: the run file's, or all cores of the process.
int threads_of(const RunConfig& run);

/// What that rank of the run holds and does.
Sharding sharding_of(const RunConfig& run, int rank);

/// What leaves the device. Throws Error for what cannot: weights that several ranks hold whole.
Offload offload_of(const RunConfig& run);

/// How transfers with the nvme tier are cut and queued.
TransferOptions transfers_of(const RunConfig& run);

/// Programs of one rank of a training run: forward and backward of a micro-batch, gradient norm, optimizer, and
/// evaluation where there is validation data; for preference pairs, of each data set what the reference model makes of
/// it: the model as the run starts from it, with its adapter, so that both round alike. All ranks have the same plan.
CompiledRun compile_training(const ModelConfig& model, const RunConfig& run, WeightRules rules, StreamCapacity train,
                             std::optional<StreamCapacity> validation, int rank = 0);

/// Forward alone, with the loss.
CompiledRun compile_evaluation(const ModelConfig& model, WeightRules rules, DType activation, StreamCapacity capacity,
                               std::int64_t max_length, int threads);

/// Forward of up to `prompt_tokens` at a time over a key-value cache of `cache_positions`, to the logits of the last
/// token. Where the cache has to be made anew on the way (key_cache_limits), as many at a time as that takes.
CompiledRun compile_generation(const ModelConfig& model, WeightRules rules, DType activation,
                               std::int64_t prompt_tokens, std::int64_t cache_positions, int threads);

}  // namespace heddle
