#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "checkpoint/checkpoint.h"
#include "config/run_config.h"
#include "program/builder.h"
#include "train/executor.h"
#include "train/loss_scaler.h"

namespace heddle {

/// What a run carries from step to step besides its tensors.
struct TrainingState {
  std::int64_t step = 0;     ///< optimizer steps taken or skipped
  std::int64_t updates = 0;  ///< steps that changed the weights: the schedule's and Adam's clock
  std::int64_t skipped_in_a_row = 0;
  LossScaler::State loss_scaler;
};

/// The tensors of a checkpoint: fp32 weights and the optimizer's moments, by logical name.
std::vector<CheckpointTensor> checkpoint_tensors(const Parameters& parameters, const Executor& executor);

Json state_document(const TrainingState& state, const RunConfig& run);
TrainingState read_state(const Checkpoint& checkpoint);
/// Fills weights and moments; the state is read_state()'s.
void restore_tensors(const Checkpoint& checkpoint, const Parameters& parameters, Executor& executor);

/// The checkpoint to go on from, as resume_from_checkpoint says; none: a fresh start. Throws Error for a path without
/// one.
std::optional<Checkpoint> find_resume_point(const RunConfig& run);

}  // namespace heddle
