#include "train/rewinding.h"

#include <vector>

#include "base/error.h"
#include "checkpoint/folder.h"
#include "checkpoint/save.h"

namespace heddle {

Rewinding::Rewinding(const RunConfig& run, const TrainingState& state, Communicator& communicator)
    : run_(run), communicator_(communicator) {
  if (communicator.rank() != 0 || run.resume_from_checkpoint != "auto") return;
  for (const auto step : checkpoint_steps(run.output_dir)) {
    if (step <= state.step) steps_.insert(step);
  }
}

std::optional<BadWindow> Rewinding::window_after(const StepMetrics& metrics, TrainingState& state) const {
  if (state.skipped_in_a_row >= run_.max_skipped_steps) {
    return BadWindow{state.step - state.skipped_in_a_row + 1, state.step,
                     fmt::format("step {}: the loss or the gradients were not finite in {} steps in a row "
                                 "(max_skipped_steps)",
                                 state.step, state.skipped_in_a_row)};
  }
  if (state.loss_watch.is_spike(metrics.loss, *run_.rewind_on_spike)) {
    return BadWindow{state.step, state.step,
                     fmt::format("step {}: the loss is {:.6g}, more than {:g} times the median {:.6g} of the {} before "
                                 "(rewind_on_spike)",
                                 state.step, metrics.loss, *run_.rewind_on_spike, *state.loss_watch.median(),
                                 state.loss_watch.losses.size())};
  }
  state.loss_watch.add(metrics.loss);
  return std::nullopt;
}

Checkpoint Rewinding::checkpoint_before(const BadWindow& window, std::int64_t rewinds) {
  if (rewinds >= run_.max_rewinds)
    fail("{}; the run has gone back {} times before (max_rewinds)", window.reason, rewinds);
  std::vector<std::int64_t> steps;
  for (const auto step : checkpoint_steps(run_.output_dir)) {
    if (step < window.first_step && steps_.contains(step)) steps.push_back(step);
  }
  if (last_ == window.first_step - 1 && steps.size() > 1 && steps.front() == last_) steps.erase(steps.begin());
  std::optional<Checkpoint> checkpoint = newest_checkpoint(run_.output_dir, steps, communicator_);
  if (!checkpoint) fail("{}; {} has no checkpoint from before it to go back to", window.reason, run_.output_dir);
  last_ = checkpoint->step();
  return std::move(*checkpoint);
}

void Rewinding::remove_newer(std::int64_t step) {
  if (communicator_.rank() != 0) return;
  for (const auto newer : checkpoint_steps(run_.output_dir)) {
    if (newer > step && steps_.contains(newer)) remove_checkpoint_folder(checkpoint_folder(run_.output_dir, newer));
  }
  steps_.erase(steps_.upper_bound(step), steps_.end());
}

TrainingState behind_window(const TrainingState& checkpoint, const TrainingState& now, const DataOrder& data) {
  TrainingState state = checkpoint;
  state.schedule_step = now.schedule_step;
  state.loss_watch.rewinds = now.loss_watch.rewinds + 1;
  state.loss_watch.skipped_rows = checkpoint.loss_watch.skipped_rows + rows_before(now.schedule_step, data) -
                                  rows_before(checkpoint.schedule_step, data);
  return state;
}

std::string rewind_text(const BadWindow& window, const TrainingState& checkpoint, const TrainingState& after,
                        std::int64_t max_rewinds) {
  return fmt::format(
      "{}: back to checkpoint-{}; what steps {} to {} did is undone, and their {} rows are skipped "
      "(rewind {} of {})",
      window.reason, checkpoint.step, checkpoint.step + 1, window.last_step,
      after.loss_watch.skipped_rows - checkpoint.loss_watch.skipped_rows, after.loss_watch.rewinds, max_rewinds);
}

}  // namespace heddle
