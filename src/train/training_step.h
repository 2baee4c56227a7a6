#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "data/batches.h"
#include "monitor/metrics.h"
#include "train/compile.h"
#include "train/executor.h"
#include "train/loss_scaler.h"
#include "train/micro_batches.h"
#include "train/stream.h"
#include "train/training_state.h"

namespace heddle {

/// An optimizer step of one rank: all its micro-batches, the gradients' norm, and the update unless the loss or the
/// norm was not finite.
class TrainingStep {
 public:
  /// All must outlive it. `reference` is of preference pairs; null with other losses.
  TrainingStep(const RunConfig& run, const CompiledRun& compiled, Executor& executor, const BatchSchedule& schedule,
               const ReferenceLogProbs* reference, Communicator& communicator);

  /// Takes the step that `state` is at and moves `state` and `scaler` behind it. `agree` is called where ranks have
  /// just waited for each other; its time counts as communication. Of the metrics, time.checkpoint is left to the
  /// caller.
  StepMetrics take(TrainingState& state, LossScaler& scaler, std::int64_t total_steps,
                   const std::function<void()>& agree);

  /// Makes what the step left of its update to the next one. Before anything but take() reads or writes weights or
  /// states, or asks the executor what it held.
  void finish_update();

 private:
  const RunConfig& run_;
  const CompiledRun& compiled_;
  Executor& executor_;
  const BatchSchedule& schedule_;
  StreamFeed feed_;
  MicroBatches batches_;
  std::optional<Scalars> left_;  // of the update that the next step makes
};

}  // namespace heddle
