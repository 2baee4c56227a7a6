#include "train/trainer.h"

#include <chrono>
#include <cmath>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "formats/files.h"
#include "kernels/cpu/table.h"
#include "monitor/monitor.h"
#include "train/evaluate.h"
#include "train/model_folder.h"
#include "train/plan_document.h"
#include "train/run_setup.h"
#include "train/schedule.h"
#include "train/signals.h"
#include "train/training_state.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string_view precision_name(Precision precision) {
  return precision == Precision::bf16 ? "bf16" : precision == Precision::fp16 ? "fp16" : "fp32";
}

void check_fits(const MemoryPlan& plan, const RunConfig& run) {
  const std::uint64_t there = run.device_memory.value_or(available_memory());
  if (plan.device.peak <= there) return;
  fail("the run needs {} on device, {} are there; a smaller per_device_train_batch_size or max_length needs less{}",
       format_bytes(plan.device.peak), format_bytes(there),
       run.recompute == Recompute::full ? "" : ", and so does recompute: full");
}

/// One training run on one rank.
class Trainer {
 public:
  explicit Trainer(const RunFile& file)
      : file_(file),
        run_(file.config()),
        model_(open_run_model(run_)),
        output_dir_(run_.output_dir),
        scaler_(run_.loss_scaling) {}

  int run() {
    set_threads(threads_of(run_));
    std::optional<WeightFolder> folder;
    if (model_.has_weights) folder.emplace(model_.folder);
    resume_ = find_resume_point(run_);
    data_ = load_run_data(run_, model_);
    compiled_ = compile_run(run_, model_, data_);
    if (folder) {
      source_ = match_weights(*folder, compiled_.parameters, model_.config);
    } else {
      source_ = fresh_source(compiled_.parameters, dtype_from_torch(model_.config.torch_dtype));
    }
    check_fits(compiled_.plan, run_);
    schedule_.emplace(*data_.train, batch_options(run_));
    total_steps_ = run_.max_steps > 0 ? run_.max_steps
                                      : static_cast<std::int64_t>(std::ceil(
                                            run_.num_train_epochs * static_cast<double>(schedule_->steps_per_epoch())));
    make_folder(output_dir_);  // not before: a run that is refused leaves nothing behind
    write_documents();
    executor_.emplace(compiled_.program_list(), compiled_.plan, cpu::find_kernel, compiled_.threads);
    feed_.emplace(*executor_);
    fill_weights(folder);
    start_monitor();
    return loop();
  }

 private:
  void write_documents() const {
    write_text_file(output_dir_ / "effective_config.json", file_.effective().dump(2) + "\n");
    write_text_file(output_dir_ / "plan.json",
                    bill_document(compiled_.parameters, compiled_.plan.device).dump(2) + "\n");
  }

  void fill_weights(const std::optional<WeightFolder>& folder) {
    if (resume_) {
      state_ = read_state(*resume_);
      restore_tensors(*resume_, compiled_.parameters, *executor_);
      if (run_.precision == Precision::fp16) scaler_.restore(state_.loss_scaler);
      note("resuming from {} after step {}", resume_->folder().string(), state_.step);
      resume_.reset();
    } else if (folder) {
      load_weights(*folder, source_, compiled_.parameters, *executor_);
    } else {
      initialize_weights(compiled_.parameters, run_.seed, *executor_);
    }
  }

  void start_monitor() {
    const auto parameters = format_count(static_cast<std::uint64_t>(compiled_.parameters.count()));
    note("{}: {} parameters, {}; {} rows, {} optimizer steps; {} planned on device", model_.config.model_type,
         parameters, precision_name(run_.precision), format_count(static_cast<std::uint64_t>(data_.train->num_rows())),
         total_steps_, format_bytes(compiled_.plan.device.peak));
    Monitor::Options options;
    options.output_dir = output_dir_;
    options.first_step = state_.step + 1;
    options.max_steps = total_steps_;
    options.logging_steps = run_.logging_steps;
    options.held_bytes = compiled_.plan.device.peak;
    options.tensorboard = run_.report_to_tensorboard;
    options.title =
        fmt::format("{}, {} parameters, {}", model_.config.model_type, parameters, precision_name(run_.precision));
    monitor_.emplace(std::move(options));
  }

  int loop() {
    const SignalWatch watch;
    auto saved_at = Clock::now();
    std::int64_t saved_step = state_.step;
    while (state_.step < total_steps_ && SignalWatch::received() == 0) {
      monitor_->on_step(take_step());
      stop_if_nothing_moves();
      const bool last = state_.step == total_steps_;
      if (data_.validation && (last || (run_.eval_steps > 0 && state_.step % run_.eval_steps == 0))) run_evaluation();
      // Last, so that a resume finds every line up to the checkpoint's step.
      if ((run_.save_steps > 0 && (last || state_.step % run_.save_steps == 0)) ||
          (run_.save_minutes > 0 && seconds_since(saved_at) >= 60 * run_.save_minutes)) {
        save();
        saved_at = Clock::now();
        saved_step = state_.step;
      }
    }
    const int signal = SignalWatch::received();
    if (signal != 0 && state_.step < total_steps_) {
      if (saved_step != state_.step) save();
      note("stopped by {}; checkpoint-{} holds everything", signal == SIGINT ? "SIGINT" : "SIGTERM", state_.step);
      return signal == SIGINT ? 130 : 143;
    }
    finish();
    return 0;
  }

  /// One optimizer step: all its micro-batches, the norm, and the update unless something was not finite.
  StepMetrics take_step() {
    const auto start = Clock::now();
    StepMetrics metrics;
    const StepBatch batch = schedule_->step(state_.step);
    metrics.time.data = seconds_since(start);
    const auto before = executor_->seconds_by_phase();
    const double scale = run_.precision == Precision::fp16 ? scaler_.scale() : 1.0;
    Scalars scalars;
    scalars.seed = run_.seed;
    scalars.gradient_scale = static_cast<float>(scale / static_cast<double>(batch.supervised_tokens));
    scalars.inverse_loss_scale = static_cast<float>(1.0 / scale);
    scalars.max_grad_norm = static_cast<float>(run_.max_grad_norm);
    for (std::size_t i = 0; i < batch.micro_batches.size(); ++i) {
      scalars.first_micro_batch = i == 0;
      scalars.micro_batch = static_cast<std::uint64_t>(state_.step * run_.gradient_accumulation_steps) + i;
      const auto feeding = Clock::now();
      feed_->load(batch.micro_batches[i], scalars);
      metrics.time.data += seconds_since(feeding);
      executor_->run(index(compiled_.micro_batch), scalars);
    }
    executor_->run(index(compiled_.norm), scalars);
    metrics.loss = *executor_->persistent(labels::loss).as<double>() / static_cast<double>(batch.supervised_tokens);
    metrics.grad_norm = *executor_->persistent(labels::gradient_norm).as<double>();
    metrics.skipped = !std::isfinite(metrics.loss) || !std::isfinite(metrics.grad_norm);
    metrics.learning_rate = learning_rate_at(run_.schedule, run_.learning_rate, state_.updates, total_steps_);
    if (!metrics.skipped) update(scalars, metrics.learning_rate);
    state_.skipped_in_a_row = metrics.skipped ? state_.skipped_in_a_row + 1 : 0;
    if (run_.precision == Precision::fp16) {
      metrics.loss_scale = scale;
      scaler_.update(metrics.skipped);
      state_.loss_scaler = scaler_.state();
    }
    ++state_.step;
    const auto& after = executor_->seconds_by_phase();
    metrics.time.forward = after[0] - before[0];
    metrics.time.backward = after[1] - before[1] + after[2] - before[2];
    metrics.time.optimizer = after[3] - before[3];
    metrics.time.checkpoint = std::exchange(checkpoint_seconds_, 0.0);
    metrics.step = state_.step;
    metrics.epoch = batch.epoch;
    metrics.num_tokens = batch.tokens;
    metrics.num_supervised_tokens = batch.supervised_tokens;
    metrics.step_time = seconds_since(start);
    metrics.tokens_per_second = static_cast<double>(batch.tokens) / metrics.step_time;
    return metrics;
  }

  void update(Scalars& scalars, double learning_rate) {
    const auto updates = static_cast<double>(++state_.updates);
    scalars.learning_rate = learning_rate;
    scalars.bias_correction1 = 1.0 - std::pow(run_.adam_beta1, updates);
    scalars.bias_correction2 = 1.0 - std::pow(run_.adam_beta2, updates);
    executor_->run(index(compiled_.update), scalars);
  }

  void stop_if_nothing_moves() const {
    if (run_.max_skipped_steps > 0 && state_.skipped_in_a_row >= run_.max_skipped_steps) {
      fail("step {}: the loss or the gradients were not finite in {} steps in a row (max_skipped_steps)", state_.step,
           state_.skipped_in_a_row);
    }
  }

  void run_evaluation() {
    const auto result =
        evaluate(*executor_, index(compiled_.evaluate), *data_.validation, run_.per_device_eval_batch_size);
    monitor_->on_evaluation({state_.step, result.loss, result.perplexity(), result.num_tokens});
  }

  void save() {
    const auto start = Clock::now();
    auto files = companion_files(model_.folder);
    files.push_back(model_.config_path);
    save_checkpoint(output_dir_, state_.step, checkpoint_tensors(compiled_.parameters, *executor_),
                    state_document(state_, run_), files);
    remove_old_checkpoints(output_dir_, run_.save_total_limit);
    checkpoint_seconds_ += seconds_since(start);
  }

  void finish() {
    write_text_file(output_dir_ / "memory.json", bill_document(compiled_.parameters, executor_->held()).dump(2) + "\n");
    export_model(output_dir_, model_, run_.tokenizer_name, source_, compiled_.parameters, *executor_, run_.torch_dtype);
    monitor_->finish();
    note("the trained model is in {}", output_dir_.string());
  }

  static std::size_t index(int program) { return static_cast<std::size_t>(program); }

  const RunFile& file_;
  const RunConfig& run_;
  ModelSource model_;
  fs::path output_dir_;
  LossScaler scaler_;
  std::optional<Checkpoint> resume_;
  RunData data_;
  CompiledRun compiled_;
  WeightSource source_;
  std::optional<BatchSchedule> schedule_;
  std::int64_t total_steps_ = 0;
  std::optional<Executor> executor_;
  std::optional<StreamFeed> feed_;
  std::optional<Monitor> monitor_;
  TrainingState state_;
  double checkpoint_seconds_ = 0;  ///< of saves since the last step; the next step's line has them
};

}  // namespace

int train(const RunFile& run) {
  run.require_training_keys();
  return Trainer(run).run();
}

}  // namespace heddle
