#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"
#include "config/run_config.h"
#include "monitor/metrics.h"
#include "train/training_state.h"

namespace heddle {

/// Steps after which a run goes back: those of a streak that was not finite, or one with a loss spike.
struct BadWindow {
  std::int64_t first_step = 0, last_step = 0;
  std::string reason;  ///< "step 40: the loss is 9.1, more than 3 times ..."
};

/// When a run with rewind_on_spike goes back, and to which checkpoint. The decision needs what all ranks know: the
/// reduced loss and the state.
class Rewinding {
 public:
  /// `state` is that at the start. Only checkpoints of this run are gone back to: those that it saves, and where it
  /// resumed from the newest of output_dir, those before.
  Rewinding(const RunConfig& run, const TrainingState& state, Communicator& communicator);

  /// After a step, whose loss `state` is given to remember unless it is a spike. `state` has counted the step.
  std::optional<BadWindow> window_after(const StepMetrics& metrics, TrainingState& state) const;
  /// A checkpoint of that step was begun.
  void on_save(std::int64_t step) { steps_.insert(step); }
  /// On all ranks, while no save is under way: the checkpoint from before the window, the newest that is whole. Where
  /// the window begins right after the last one that was gone back to, its weights are suspect, and one before it is
  /// taken if there is one. Throws Error with the window's reason where there is none, or after max_rewinds.
  Checkpoint checkpoint_before(const BadWindow& window, std::int64_t rewinds);
  /// Removes the checkpoints after the one that was gone back to: the run does not come from them any more.
  void remove_newer(std::int64_t step);

 private:
  const RunConfig& run_;
  Communicator& communicator_;
  std::set<std::int64_t> steps_;  // of this run's checkpoints, removed ones among them; rank 0's counts
  std::int64_t last_ = -1;        // gone back to
};

/// The state from which a run goes on: that of the checkpoint, behind the rows that `now` has used.
TrainingState behind_window(const TrainingState& checkpoint, const TrainingState& now, const DataOrder& data);

/// What the run says when it goes back.
std::string rewind_text(const BadWindow& window, const TrainingState& checkpoint, const TrainingState& after,
                        std::int64_t max_rewinds);

}  // namespace heddle
