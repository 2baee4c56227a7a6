#pragma once

#include <filesystem>

#include "comm/communicator.h"
#include "program/builder.h"
#include "program/partition.h"
#include "train/best_evaluation.h"
#include "train/executor.h"

/// load_best_model_at_end: the checkpoint of the best evaluation. All ranks of a run call these functions.
namespace heddle {

/// For a run that goes on: `best`, if output_dir holds its checkpoint; else, as after a resume from another folder,
/// none, with a warning, so that the best of what comes counts.
BestEvaluation with_checkpoint(const BestEvaluation& best, const std::filesystem::path& output_dir,
                               Communicator& communicator);

/// After the last step: fills what this rank holds of weights, master weights and moments from the checkpoint of the
/// best evaluation, which is verified first, and says which it is; without one the weights stay, with a warning. Throws
/// Error where the checkpoint is not there, is damaged, or is of another run.
void load_best_model(const BestEvaluation& best, std::int64_t last_step, const std::filesystem::path& output_dir,
                     const Parameters& parameters, const Sharding& sharding, Executor& executor,
                     Communicator& communicator);

}  // namespace heddle
