#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/save.h"
#include "config/run_config.h"
#include "data/dataset.h"
#include "program/builder.h"
#include "program/partition.h"
#include "train/best_evaluation.h"
#include "train/executor.h"
#include "train/loss_scaler.h"
#include "train/loss_watch.h"

namespace heddle {

/// What a run carries from step to step besides its tensors.
struct TrainingState {
  std::int64_t step = 0;     ///< optimizer steps taken or skipped
  std::int64_t updates = 0;  ///< steps that changed the weights: the schedule's and Adam's clock
  std::int64_t skipped_in_a_row = 0;
  /// The step of the BatchSchedule that comes next. It is `step` as long as a step takes as many rows as before.
  std::int64_t schedule_step = 0;
  /// Micro-batches so far, of all ranks together: what random streams of a micro-batch count by.
  std::int64_t micro_batches = 0;
  std::optional<LossScaler::State> loss_scaler;  ///< of fp16 runs; none where a run begins with its first one
  BestEvaluation best;
  LossWatch loss_watch;
};

/// Which rows come in which order: a run goes on from a checkpoint only where this is the same, or where the rows that
/// are left come out once each all the same.
struct DataOrder {
  std::int64_t rows = 0;           ///< of the data set
  std::int64_t rows_per_step = 0;  ///< of all ranks together
  bool is_shuffled = true;
  std::uint64_t seed = 0;
  std::string digest;  ///< of the rows' lengths, and of what some of them hold
};
/// `rows_per_step`: micro-batch rows x accumulation x ranks.
DataOrder data_order(const Dataset& dataset, const RunConfig& run, std::int64_t rows_per_step);
/// Rows that come before a step of the BatchSchedule, of all epochs.
std::int64_t rows_before(std::int64_t schedule_step, const DataOrder& data);

/// The pieces of the training state that this rank saves: fp32 weights and the optimizer's moments, by logical name.
std::vector<CheckpointPiece> checkpoint_pieces(const Executor& executor, const Parameters& parameters,
                                               const Sharding& sharding);
/// Bytes of such a checkpoint, of all ranks together.
std::uint64_t checkpoint_bytes(const Parameters& parameters);

/// The document that the manifest keeps; `data` tells by sample how far the data has been used.
Json state_document(const TrainingState& state, const DataOrder& data);
/// The same where another program has used that many rows, in an order of its own.
Json state_document(const TrainingState& state, std::int64_t rows_used);
/// Reads it for a run whose data comes in the order `data`. Throws Error naming what differs, where rows would be used
/// twice or never.
TrainingState read_state(const Checkpoint& checkpoint, const DataOrder& data);

/// Throws Error naming the checkpoint and the first tensor that the model has and it has not, or the other way round,
/// or in another shape; or where weights are frozen, which it does not hold, and those of `base_digest` are not its
/// own. Reads no weight.
void require_same_model(const Checkpoint& checkpoint, const Parameters& parameters, const std::string& base_digest);
/// Fills what this rank holds of weights, master weights and moments, reading only these.
void restore_tensors(const Checkpoint& checkpoint, const Parameters& parameters, const Sharding& sharding,
                     Executor& executor);

/// The checkpoint to go on from, as resume_from_checkpoint says, verified and the same on all ranks; none: a fresh
/// start. Throws Error for a path without one.
std::optional<Checkpoint> find_resume_point(const RunConfig& run, Communicator& communicator);

}  // namespace heddle
