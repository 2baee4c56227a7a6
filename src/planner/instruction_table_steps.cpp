// Optimizer steps of a run, timed: training without a trace on disk.
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/random.h"
#include "base/threads.h"
#include "comm/job.h"
#include "kernels/cpu/table.h"
#include "planner/activation_choice.h"
#include "planner/instruction_table.h"
#include "train/compile_fitting.h"
#include "train/executor.h"
#include "train/micro_batches.h"
#include "train/optimizer.h"
#include "train/run_setup.h"
#include "train/run_weights.h"
#include "train/stream.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

/// Full rows of random ids, for a run that names no data.
StepBatch random_batch(const RunConfig& run, std::int64_t vocabulary) {
  StepBatch batch;
  Random random(run.seed, 0);
  const auto next_id = [&] { return static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary))); };
  for (std::int64_t i = 0; i < run.gradient_accumulation_steps * run.ranks; ++i) {
    MicroBatch& micro_batch = batch.micro_batches.emplace_back();
    for (std::int64_t row = 0; row < run.per_device_train_batch_size; ++row) {
      micro_batch.document_starts.push_back(static_cast<std::int32_t>(micro_batch.tokens()));
      for (std::int64_t t = 0; t < run.max_length; ++t) {
        micro_batch.input_ids.push_back(next_id());
        micro_batch.labels.push_back(next_id());
        micro_batch.positions.push_back(static_cast<std::int32_t>(t));
      }
    }
    micro_batch.document_starts.push_back(static_cast<std::int32_t>(micro_batch.tokens()));
    micro_batch.supervised_tokens = micro_batch.tokens();
    batch.tokens += micro_batch.tokens();
  }
  batch.supervised_tokens = batch.tokens;
  return batch;
}

StreamSizes sizes_of(const MicroBatch& batch, bool is_first) {
  StreamSizes sizes;
  for (std::size_t i = 1; i < batch.document_starts.size(); ++i) {
    sizes.documents.push_back(batch.document_starts[i] - batch.document_starts[i - 1]);
  }
  sizes.supervised_tokens = batch.supervised_tokens;
  sizes.is_first_micro_batch = is_first;
  return sizes;
}

/// A run on one rank, without output.
class TimedSteps {
 public:
  TimedSteps(RunConfig& run, const ModelSource& model, const RunData& data, Communicator& communicator)
      : run_(run),
        weights_(model.has_weights ? open_weights(model, communicator) : nullptr),
        compiled_(compile_fitting(run, model, weights_.get(), data, choose_activations_for_training, communicator)),
        executor_(compiled_.program_list(), compiled_.plan, cpu::find_kernel, compiled_.threads, &communicator,
                  run.nvme_path, transfers_of(run)),
        feed_(executor_),
        batches_(communicator) {
    RunWeights(model, std::move(weights_), compiled_).load(compiled_, run.seed, executor_);
    executor_.release_nvme();
    if (data.train) {
      schedule_.emplace(*data.train, batch_options(run));
    } else {
      random_ = random_batch(run, model.config.vocab_size);
    }
    for (const int program : {compiled_.micro_batch, compiled_.norm, compiled_.update, compiled_.streamed_update}) {
      if (program < 0) continue;
      auto& entry = runs_.emplace_back();
      entry.program = &compiled_.programs[static_cast<std::size_t>(program)];
    }
  }

  /// Forgets what was counted so far.
  void restart() {
    step_seconds_ = tokens_ = 0;
    for (auto& entry : runs_) {
      entry.executions.clear();
      entry.seconds = seconds_of(entry);
    }
  }

  void step() {
    const auto start = Clock::now();
    const StepBatch batch = schedule_ ? schedule_->step(steps_) : random_;
    Scalars scalars;
    scalars.seed = run_.seed;
    scalars.gradient_scale = static_cast<float>(1.0 / static_cast<double>(batch.supervised_tokens));
    scalars.max_grad_norm = static_cast<float>(run_.max_grad_norm);
    batches_.run(batch, scalars, [&](const MicroBatch& micro_batch, std::int64_t place) {
      scalars.micro_batch = static_cast<std::uint64_t>(place);
      feed_.load(micro_batch, scalars);
      execute(compiled_.micro_batch, scalars, sizes_of(micro_batch, scalars.first_micro_batch));
      return *executor_.persistent(labels::loss).as<double>();
    });
    execute(compiled_.norm, scalars, {});
    batches_.gather_losses();
    set_update(scalars, run_, ++steps_, run_.learning_rate);
    execute(compiled_.update, scalars, {});
    if (compiled_.streamed_update >= 0) execute(compiled_.streamed_update, scalars, {});
    step_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
    tokens_ += static_cast<double>(batch.tokens);
  }

  InstructionTable table(const ThreadCeilings& ceilings, int steps) const {
    std::vector<ProgramRuns> since_restart = runs_;
    for (auto& entry : since_restart) {
      const auto now = seconds_of(entry);
      for (std::size_t i = 0; i < now.size(); ++i) entry.seconds[i] = now[i] - entry.seconds[i];
    }
    InstructionTable table = make_instruction_table(since_restart, ceilings, steps);
    table.ranks = run_.ranks;
    table.step_seconds = step_seconds_ / steps;
    table.tokens = tokens_ / steps;
    return table;
  }

 private:
  std::size_t index_of(const ProgramRuns& entry) const {
    return static_cast<std::size_t>(entry.program - compiled_.programs.data());
  }
  std::vector<double> seconds_of(const ProgramRuns& entry) const {
    return executor_.seconds_by_instruction(index_of(entry));
  }

  void execute(int program, const Scalars& scalars, const StreamSizes& sizes) {
    executor_.run(static_cast<std::size_t>(program), scalars);
    for (auto& entry : runs_) {
      if (index_of(entry) == static_cast<std::size_t>(program)) entry.executions.push_back(sizes);
    }
  }

  const RunConfig& run_;
  std::unique_ptr<WeightFiles> weights_;  // until they are loaded
  CompiledRun compiled_;
  Executor executor_;
  StreamFeed feed_;
  MicroBatches batches_;
  std::optional<BatchSchedule> schedule_;
  StepBatch random_;
  std::vector<ProgramRuns> runs_;  // seconds are those at the last restart
  std::int64_t steps_ = 0;
  double step_seconds_ = 0, tokens_ = 0;
};

}  // namespace

InstructionTable measure_steps(const RunFile& file, int steps, const CeilingProgress& progress) {
  const ModelSource model = open_run_model(file.config());
  progress("reading data");
  const RunData data = load_run_data(file.config(), model);
  InstructionTable table;
  run_job(file.config().ranks, [&](Communicator& communicator) {
    const bool is_root = communicator.rank() == 0;
    if (!is_root) mute_thread_log();
    RunConfig run = file.config();
    if (run.threads == 0) run.threads = communicator.cores();
    set_threads(run.threads, communicator.core_share());
    ThreadCeilings ceilings;
    if (is_root) {
      const auto cached = cached_ceilings();
      const ThreadCeilings* found = cached ? cached->of_threads(run.threads) : nullptr;
      if (found == nullptr) progress("multiply-adds and memory (heddle bench keeps them for next time)");
      ceilings = found != nullptr ? *found : measure_threads(run.threads, 0.2);
    }
    communicator.barrier("heddle bench");
    TimedSteps timed(run, model, data, communicator);
    for (int i = 0; i <= steps; ++i) {  // the first does not count
      if (is_root) progress(i == 0 ? "a step that does not count" : fmt::format("step {} of {}", i, steps));
      timed.step();
      if (i == 0) timed.restart();
    }
    if (is_root) table = timed.table(ceilings, steps);
    return 0;
  });
  return table;
}

}  // namespace heddle
