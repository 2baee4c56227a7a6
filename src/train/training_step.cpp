#include "train/training_step.h"

#include <chrono>
#include <cmath>

#include "base/log.h"
#include "train/evaluate.h"
#include "train/optimizer.h"
#include "train/schedule.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::size_t index(int program) { return static_cast<std::size_t>(program); }

/// The batch of the step that `state` is at, its rows as long as the curriculum says.
StepBatch next_batch(const RunConfig& run, const BatchSchedule& schedule, const TrainingState& state) {
  if (!run.curriculum.is_enabled) return schedule.step(state.schedule_step);
  const std::int64_t positions = run.curriculum.length_at(state.step + 1);
  StepBatch batch = schedule.step(state.schedule_step, positions);
  if (batch.supervised_tokens == 0)
    warning("step {}: no target is among the first {} positions of its rows", state.step + 1, positions);
  return batch;
}

}  // namespace

TrainingStep::TrainingStep(const RunConfig& run, const CompiledRun& compiled, Executor& executor,
                           const BatchSchedule& schedule, const ReferenceLogProbs* reference,
                           Communicator& communicator)
    : run_(run),
      compiled_(compiled),
      executor_(executor),
      schedule_(schedule),
      feed_(executor, reference),
      batches_(communicator) {}

StepMetrics TrainingStep::take(TrainingState& state, LossScaler& scaler, std::int64_t total_steps,
                               const std::function<void()>& agree) {
  const auto start = Clock::now();
  StepMetrics metrics;
  const StepBatch batch = next_batch(run_, schedule_, state);
  metrics.time.data = seconds_since(start);
  const auto before = executor_.seconds_by_phase();
  const double communicated_before = executor_.seconds_waiting(Queue::communication);
  const double offloaded_before = executor_.seconds_waiting(Queue::transfer);
  const double scale = run_.precision == Precision::fp16 ? scaler.scale() : 1.0;
  Scalars scalars;
  scalars.seed = run_.seed;
  // The loss is a mean over tokens, or over pairs.
  const auto counted = static_cast<double>(run_.trains_on_pairs() ? batch.rows : batch.supervised_tokens);
  scalars.gradient_scale = static_cast<float>(scale / counted);
  scalars.inverse_loss_scale = static_cast<float>(1.0 / scale);
  scalars.max_grad_norm = static_cast<float>(run_.max_grad_norm);
  batches_.run(batch, scalars, [&](const MicroBatch& micro_batch, std::int64_t place) {
    scalars.micro_batch = static_cast<std::uint64_t>(state.micro_batches + place);
    const auto feeding = Clock::now();
    feed_.load(micro_batch, scalars);
    metrics.time.data += seconds_since(feeding);
    if (left_) {
      executor_.run(index(compiled_.micro_batch_with_update), scalars, &*left_);
      left_.reset();
    } else {
      executor_.run(index(compiled_.micro_batch), scalars);
    }
    return LossSums::of(executor_);
  });
  executor_.run(index(compiled_.norm), scalars);
  const auto agreeing = Clock::now();
  const LossSums sums = batches_.gather_losses();
  metrics.loss = sums.loss / counted;
  if (run_.trains_on_pairs()) metrics.preference = preference_metrics(sums, batch.rows);
  agree();
  metrics.time.communication =
      executor_.seconds_waiting(Queue::communication) - communicated_before + seconds_since(agreeing);
  metrics.grad_norm = *executor_.persistent(labels::gradient_norm).as<double>();
  metrics.skipped = !std::isfinite(metrics.loss) || !std::isfinite(metrics.grad_norm);
  metrics.learning_rate = learning_rate_at(run_.schedule, run_.learning_rate, state.updates, total_steps);
  if (!metrics.skipped) {
    set_update(scalars, run_, ++state.updates, metrics.learning_rate);
    executor_.run(index(compiled_.update), scalars);
    if (compiled_.streamed_update >= 0) left_ = scalars;
  }
  state.skipped_in_a_row = metrics.skipped ? state.skipped_in_a_row + 1 : 0;
  if (run_.precision == Precision::fp16) {
    metrics.loss_scale = scale;
    scaler.update(metrics.skipped);
    state.loss_scaler = scaler.state();
  }
  ++state.step;
  ++state.schedule_step;
  state.micro_batches += static_cast<std::int64_t>(batch.micro_batches.size());
  const auto& after = executor_.seconds_by_phase();
  metrics.time.forward = after[0] - before[0];
  metrics.time.backward = after[1] - before[1] + after[2] - before[2];
  metrics.time.optimizer = after[3] - before[3];
  metrics.time.offload = executor_.seconds_waiting(Queue::transfer) - offloaded_before;
  metrics.step = state.step;
  metrics.epoch = batch.epoch;
  metrics.num_tokens = batch.tokens;
  metrics.num_supervised_tokens = batch.supervised_tokens;
  metrics.step_time = seconds_since(start);
  metrics.tokens_per_second = static_cast<double>(batch.tokens) / metrics.step_time;
  return metrics;
}

void TrainingStep::finish_update() {
  if (left_) executor_.run(index(compiled_.streamed_update), *left_);
  left_.reset();
}

}  // namespace heddle
