#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/threads.h"
#include "checkpoint/agreement.h"
#include "comm/job.h"
#include "formats/files.h"
#include "formats/folder_lock.h"
#include "kernels/cpu/table.h"
#include "monitor/monitor.h"
#include "monitor/process_memory.h"
#include "train/announcement.h"
#include "train/best_model.h"
#include "train/checkpoint_export.h"
#include "train/checkpoint_saver.h"
#include "train/compile_fitting.h"
#include "train/evaluate.h"
#include "train/model_folder.h"
#include "train/plan_document.h"
#include "train/reference_log_probs.h"
#include "train/replica_check.h"
#include "train/rewinding.h"
#include "train/run_setup.h"
#include "train/run_weights.h"
#include "train/signals.h"
#include "train/step_timeline.h"
#include "train/time_limit.h"
#include "train/training_state.h"
#include "train/training_step.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::chrono::seconds kOutputPatience{10};  // until a run that was killed has let go of output_dir

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

EvalMetrics eval_metrics(std::int64_t step, const EvaluationResult& result) {
  EvalMetrics metrics{.step = step, .loss = result.loss, .perplexity = {}, .num_tokens = result.num_tokens};
  metrics.preference = result.preference;
  if (!result.preference) metrics.perplexity = result.perplexity();
  return metrics;
}

/// What all ranks of a process share: read once, before any of them starts.
struct Inputs {
  ModelSource model;
  RunData data;
  ActivationChooser choose;
};

/// One training run on one rank.
class Trainer {
 public:
  Trainer(const RunFile& file, const Inputs& inputs, Communicator& communicator)
      : file_(file),
        run_(with_threads(file.config(), communicator)),
        model_(inputs.model),
        data_(inputs.data),
        choose_(inputs.choose),
        communicator_(communicator),
        is_root_(communicator.rank() == 0),
        output_dir_(run_.output_dir),
        scaler_(run_.loss_scaling) {}

  int run() {
    limit_.emplace(run_.max_minutes);
    set_threads(run_.threads, communicator_.core_share());
    if (!is_root_) mute_thread_log();
    std::unique_ptr<WeightFiles> files;
    if (needs_weight_types(run_, model_)) files = open_weights(model_, communicator_);
    compiled_ = compile_fitting(run_, model_, files.get(), data_, choose_, communicator_);
    resume_ = find_resume_point(run_, communicator_);
    if (model_.has_weights && !files) files = open_weights(model_, communicator_);
    weights_.emplace(model_, std::move(files), compiled_);
    schedule_.emplace(*data_.train, batch_options(run_));
    const std::int64_t rows_per_step = run_.per_device_train_batch_size * run_.gradient_accumulation_steps * run_.ranks;
    data_order_ = data_order(*data_.train, run_, rows_per_step);
    if (resume_) {
      require_same_model(*resume_, compiled_.parameters, weights_->base_digest());
      state_ = read_state(*resume_, data_order_);
      if (run_.load_best_model_at_end) state_.best = with_checkpoint(state_.best, output_dir_, communicator_);
    }
    total_steps_ = steps_in_all();
    watch_memory();
    executor_.emplace(compiled_.program_list(), compiled_.plan, cpu::find_kernel, compiled_.threads, &communicator_,
                      run_.nvme_path, transfers_of(run_));
    prepare_output();
    fill_weights();
    saver_.emplace(run_, compiled_, *executor_, communicator_);
    step_.emplace(run_, compiled_, *executor_, *schedule_, reference_ ? &*reference_ : nullptr, communicator_);
    if (run_.rewind_on_spike) rewinding_.emplace(run_, state_, communicator_);
    if (is_root_) announce(run_, model_.config, compiled_, *data_.train, total_steps_, communicator_.transport());
    if (is_root_) start_monitor();
    if (run_.check_replicas_steps > 0 && !has_replicas(compiled_.parameters, compiled_.sharding))
      note("check_replicas_steps: no rank holds what another holds too; nothing is compared");
    return loop();
  }

 private:
  std::int64_t steps_in_all() const {
    if (run_.max_steps > 0) return run_.max_steps;
    const auto of_epochs =
        static_cast<std::int64_t>(std::ceil(run_.num_train_epochs * static_cast<double>(schedule_->steps_per_epoch())));
    return state_.step + std::max<std::int64_t>(0, of_epochs - state_.schedule_step);
  }

  static RunConfig with_threads(RunConfig run, const Communicator& communicator) {
    if (run.threads == 0) run.threads = communicator.cores();
    return run;
  }

  Json effective_config() const {
    Json document = file_.effective();
    if (!run_.block_activations.empty()) {
      document["recompute_blocks"] = {{"value", activations_document(run_.block_activations)},
                                      {"origin", activations_key(run_)}};
    }
    return document;
  }

  /// Not before the run is known to be sound: one that is refused leaves nothing behind.
  void prepare_output() {
    if (is_root_) {
      make_folder(output_dir_);
      output_lock_.emplace(output_dir_, kOutputPatience);
      write_text_file(output_dir_ / "effective_config.json", effective_config().dump(2) + "\n");
      write_text_file(output_dir_ / "plan.json", plan_document(compiled_).dump(2) + "\n");
    }
    communicator_.barrier("the output folder");
    const bool saves = run_.save_steps > 0 || run_.save_minutes > 0 || run_.saves_by_epoch || run_.saves_best;
    std::optional<DType> dtype;
    if (run_.torch_dtype) dtype = dtype_from_torch(*run_.torch_dtype);
    const std::uint64_t exported = export_bytes(weights_->exported(), compiled_.parameters, dtype);
    rehearse_save(output_dir_, exported + (saves ? checkpoint_bytes(compiled_.parameters) : 0), communicator_);
  }

  /// From before any rank of this process takes its planned memory. What the communicator stages is taken already.
  void watch_memory() {
    const std::uint64_t planned = compiled_.plan.device.peak - compiled_.plan.staging_bytes + compiled_.plan.host.peak;
    const int ranks = communicator_.transport() == "mpi" ? 1 : communicator_.size();
    memory_watch_.emplace(planned * static_cast<std::uint64_t>(ranks), anonymous_bytes());
    communicator_.barrier("the memory of the run");
  }

  void fill_weights() {
    const bool has_reference = run_.trains_on_pairs();
    if (!resume_ || has_reference) weights_->load(compiled_, run_.seed, *executor_);
    if (has_reference) ask_reference();
    if (resume_) {
      if (!has_reference) weights_->load_frozen(compiled_, run_.seed, *executor_);
      restore_tensors(*resume_, compiled_.parameters, compiled_.sharding, *executor_);
      restore_scaler();
      note("resuming from {} after step {}", resume_->folder().string(), state_.step);
      resume_.reset();
    }
    executor_->release_nvme();
  }

  void restore_scaler() {
    if (run_.precision != Precision::fp16) return;
    if (state_.loss_scaler) return scaler_.restore(*state_.loss_scaler);
    note("the checkpoint has no loss scale, which only fp16 runs have: it goes on at {:g}", scaler_.scale());
  }

  /// What the model that the run started from makes of the pairs, once, before any step: also of a run that goes on.
  void ask_reference() {
    executor_->release_nvme();
    const auto start = Clock::now();
    const std::int64_t first = state_.schedule_step, end = first + total_steps_ - state_.step;
    reference_.emplace(*data_.train, run_.per_device_train_batch_size);
    std::vector<bool> needed;  // all rows, where the run may skip some and so take others
    if (!run_.rewind_on_spike) needed = rows_of_steps(*schedule_, data_.train->num_rows(), first, end);
    reference_->compute(*executor_, index(compiled_.reference), needed, communicator_);
    if (data_.validation) {
      validation_reference_.emplace(*data_.validation, run_.per_device_eval_batch_size);
      validation_reference_->compute(*executor_, index(compiled_.evaluation_reference), {}, communicator_);
    }
    note("log-probabilities of the reference, the model that the run starts from, in {:.1f} s", seconds_since(start));
  }

  /// Lines of metrics.jsonl from the next step on go.
  void start_monitor() {
    Monitor::Options options;
    options.output_dir = output_dir_;
    options.first_step = state_.step + 1;
    options.max_steps = total_steps_;
    options.logging_steps = run_.logging_steps;
    options.held_bytes = compiled_.plan.device.peak;
    options.tensorboard = run_.report_to_tensorboard;
    options.title = title_ = fmt::format("{}, {}", model_.config.model_type,
                                         size_and_layout(run_, compiled_.parameters, communicator_.transport()));
    monitor_.emplace(std::move(options));
  }

  int loop() {
    // Signals go to a process: where ranks are threads of one, rank 0 watches for all.
    std::optional<SignalWatch> watch;
    if (is_root_ || communicator_.transport() == "mpi") watch.emplace();
    saved_at_ = Clock::now();
    std::int64_t saved_step = state_.step;
    // The first step touches memory for the first time, which takes long; the second is like those that follow.
    const std::int64_t recorded_step = std::min(state_.step + 2, total_steps_);
    if (is_over()) note("no step is left to take (resume_from_checkpoint: false starts anew)");
    while (!is_over() && !agreement_.stops()) {
      const bool is_recorded = run_.memory_timeline && is_root_ && state_.step + 1 == recorded_step;
      const StepMetrics metrics = is_recorded ? record_step() : take_step();
      warn_of_memory();
      saver_->end_step(agreement_.is_writing);
      if (monitor_) monitor_->on_step(metrics);
      if (const auto window = rewinding_ ? rewinding_->window_after(metrics, state_) : std::nullopt) {
        rewind(*window);
        saved_step = -1;
        continue;
      }
      stop_if_nothing_moves();
      if (is_multiple(run_.check_replicas_steps)) {
        step_->finish_update();
        check_replicas(state_.step, *executor_, compiled_.parameters, compiled_.sharding, communicator_);
      }
      const bool ends_epoch = state_.schedule_step % schedule_->steps_per_epoch() == 0;
      const bool evaluates = data_.validation && (state_.step == total_steps_ || is_multiple(run_.eval_steps) ||
                                                  (run_.evaluates_by_epoch && ends_epoch));
      const bool is_new_best = evaluates && run_evaluation();
      // Last, so that a resume finds every line up to the checkpoint's step. A new best may lie between save_steps.
      if (((run_.save_steps > 0 || run_.saves_by_epoch) && is_over()) || is_multiple(run_.save_steps) ||
          (run_.saves_by_epoch && ends_epoch) || agreement_.saves ||
          ((run_.load_best_model_at_end || run_.saves_best) && is_new_best)) {
        save();
        saved_step = state_.step;
      }
    }
    saver_->finish();
    if (agreement_.stops() && !is_over()) {
      if (saved_step != state_.step) save();
      saver_->finish();
      const int signal = agreement_.signal;
      note("stopped by {}; checkpoint-{} holds everything", signal != 0 ? SignalWatch::name_of(signal) : limit_->name(),
           state_.step);
      return 128 + (signal != 0 ? signal : SIGTERM);
    }
    if (state_.step < total_steps_)
      note("stopped early: {} evaluations in a row were no better than that of step {}", state_.best.evaluations_since,
           state_.best.step);
    finish();
    return 0;
  }

  bool is_over() const { return state_.step >= total_steps_ || state_.best.is_past(run_.early_stopping_patience); }
  /// Whether something that is done every so many steps (0: never) is due.
  bool is_multiple(std::int64_t steps) const { return steps > 0 && state_.step % steps == 0; }

  StepMetrics record_step() {
    StepRecording recording;
    executor_->record(&recording);
    const StepMetrics metrics = take_step();
    executor_->record(nullptr);
    write_step_timeline(output_dir_, compiled_, recording, fmt::format("{}, step {}", title_, metrics.step));
    note("step {} is in {}, for ui.perfetto.dev", metrics.step, (output_dir_ / "timeline.json").string());
    return metrics;
  }

  void warn_of_memory() {
    const std::uint64_t excess = agreement_.excess_mib * kMiB;
    if (!memory_watch_->is_news(excess)) return;
    warning("step {}: {} holds {} more than planned: memory of the allocator or of libraries", state_.step,
            communicator_.transport() == "mpi" ? "a process" : "the process", format_bytes(excess));
  }

  StepMetrics take_step() {
    StepMetrics metrics = step_->take(state_, scaler_, total_steps_, [&] { agree(); });
    metrics.time.checkpoint = saver_->take_seconds();
    longest_step_ = std::max(longest_step_, metrics.step_time);
    longest_save_ = std::max(longest_save_, metrics.time.checkpoint);
    return metrics;
  }

  /// All ranks learn whether one of them was told to stop, whether rank 0's clock says that it is time to stop or to
  /// save, and by how much one holds more memory than planned.
  void agree() {
    const bool time_to_save = is_root_ && run_.save_minutes > 0 && seconds_since(saved_at_) >= 60 * run_.save_minutes;
    const std::uint64_t excess = memory_watch_->excess(anonymous_bytes());
    const bool time_is_up = limit_->is_reached(std::chrono::duration<double>(2 * (longest_step_ + longest_save_)));
    std::array<std::int32_t, 5> said = {SignalWatch::received(), is_root_ && time_is_up ? 1 : 0,
                                        SignalWatch::take_save_request() || time_to_save ? 1 : 0,
                                        saver_->is_writing() ? 1 : 0, static_cast<std::int32_t>(excess / kMiB)};
    communicator_.all_reduce(std::span<std::int32_t>(said), heddle::Reduction::max, "whether to stop or save");
    agreement_ = {said[0], said[1] != 0, said[2] != 0, said[3] != 0, static_cast<std::uint64_t>(said[4])};
  }

  void stop_if_nothing_moves() {
    if (run_.max_skipped_steps > 0 && state_.skipped_in_a_row >= run_.max_skipped_steps) {
      saver_->finish();
      fail("step {}: the loss or the gradients were not finite in {} steps in a row (max_skipped_steps)", state_.step,
           state_.skipped_in_a_row);
    }
  }

  /// Goes back to the checkpoint before the window, and on behind its rows.
  void rewind(const BadWindow& window) {
    saver_->finish();
    step_->finish_update();
    const Checkpoint checkpoint = rewinding_->checkpoint_before(window, state_.loss_watch.rewinds);
    const TrainingState saved = read_state(checkpoint, data_order_);
    state_ = behind_window(saved, state_, data_order_);
    if (run_.load_best_model_at_end) state_.best = with_checkpoint(state_.best, output_dir_, communicator_);
    heddle::agree(communicator_, [&] {
      restore_tensors(checkpoint, compiled_.parameters, compiled_.sharding, *executor_);
      rewinding_->remove_newer(state_.step);
    });
    executor_->release_nvme();
    restore_scaler();
    total_steps_ = steps_in_all();
    monitor_.reset();
    warning("{}", rewind_text(window, saved, state_, run_.max_rewinds));
    if (is_root_) start_monitor();
  }

  /// True: none was better so far.
  bool run_evaluation() {
    step_->finish_update();
    const auto result =
        evaluate(*executor_, index(compiled_.evaluate), *data_.validation, run_.per_device_eval_batch_size,
                 communicator_, validation_reference_ ? &*validation_reference_ : nullptr);
    if (monitor_) monitor_->on_evaluation(eval_metrics(state_.step, result));
    return state_.best.add(state_.step, result.loss);
  }

  void save() {
    step_->finish_update();
    auto files = model_files(model_, run_.tokenizer_name, run_.torch_dtype);
    const LoraModules* adapter = compiled_.rules.adapter();
    if (adapter != nullptr) files.push_back({"adapter_config.json", "", adapter_config_text(adapter->config())});
    files.push_back({"effective_config.json", output_dir_ / "effective_config.json", ""});
    Json state = state_document(state_, data_order_);
    state["export"] = export_document(weights_->exported(), run_.torch_dtype);
    state["base"] = weights_->base_digest();
    if (adapter == nullptr && compiled_.parameters.trainable_count() < compiled_.parameters.count())
      state["base_model"] = fs::absolute(run_.model_name_or_path).lexically_normal().string();
    saver_->save(state_.step, run_.load_best_model_at_end ? state_.best.step : 0, std::move(state), std::move(files));
    if (rewinding_) rewinding_->on_save(state_.step);
    saved_at_ = Clock::now();
  }

  void finish() {
    step_->finish_update();
    const TierBills held = executor_->held();
    std::vector<TierBills> all(static_cast<std::size_t>(communicator_.size()));
    communicator_.all_gather(std::as_bytes(std::span(&held, 1)), std::as_writable_bytes(std::span(all)), "memory held");
    if (is_root_) {
      write_text_file(output_dir_ / "memory.json", bill_document(compiled_.parameters, all).dump(2) + "\n");
    }
    if (run_.load_best_model_at_end) {
      load_best_model(state_.best, state_.step, output_dir_, compiled_.parameters, compiled_.sharding, *executor_,
                      communicator_);
    }
    const auto files = compiled_.rules.adapter() != nullptr
                           ? adapter_files(model_, run_.tokenizer_name, *compiled_.rules.adapter())
                           : model_files(model_, run_.tokenizer_name, run_.torch_dtype);
    export_model(output_dir_, files, weights_->exported(), compiled_.parameters, compiled_.sharding, *executor_,
                 run_.torch_dtype, weights_->base(), communicator_);
    if (monitor_) monitor_->finish();
    if (state_.step > 0 && state_.skipped_in_a_row == state_.step)
      warning("each of the {} steps was skipped: the weights are those that the run started from", state_.step);
    note("the trained model is in {}", output_dir_.string());
  }

  static std::size_t index(int program) { return static_cast<std::size_t>(program); }

  const RunFile& file_;
  RunConfig run_;
  const ModelSource& model_;
  const RunData& data_;
  const ActivationChooser& choose_;
  Communicator& communicator_;
  const bool is_root_;  ///< rank 0, which speaks and writes for all
  fs::path output_dir_;
  std::optional<FolderLock> output_lock_;  // of rank 0
  LossScaler scaler_;
  std::optional<Checkpoint> resume_;
  CompiledRun compiled_;
  std::optional<RunWeights> weights_;
  std::optional<BatchSchedule> schedule_;
  DataOrder data_order_;
  std::int64_t total_steps_ = 0;
  std::optional<Executor> executor_;
  std::optional<ReferenceLogProbs> reference_, validation_reference_;  ///< of preference pairs
  std::optional<TrainingStep> step_;
  std::optional<Monitor> monitor_;
  std::optional<MemoryWatch> memory_watch_;
  std::string title_;
  TrainingState state_;
  struct Agreement {
    int signal = 0;
    bool is_late = false;  ///< the time limit is reached
    bool saves = false;
    bool is_writing = false;  ///< a save that is under way
    std::uint64_t excess_mib = 0;
    bool stops() const { return signal != 0 || is_late; }
  };
  Agreement agreement_;  ///< of all ranks, in the last step
  Clock::time_point saved_at_;
  std::optional<TimeLimit> limit_;
  double longest_step_ = 0, longest_save_ = 0;  ///< seconds
  std::optional<CheckpointSaver> saver_;
  std::optional<Rewinding> rewinding_;
};

}  // namespace

int train(const RunFile& run, const ActivationChooser& choose) {
  run.require_training_keys();
  // Before the ranks meet: none waits in a collective while another prepares data, however long that takes.
  Inputs inputs{open_run_model(run.config()), {}, choose};
  inputs.data = load_run_data(run.config(), inputs.model);
  return run_job(run.config().ranks,
                 [&](Communicator& communicator) { return Trainer(run, inputs, communicator).run(); });
}

}  // namespace heddle
