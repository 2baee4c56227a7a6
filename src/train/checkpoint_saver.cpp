#include "train/checkpoint_saver.h"

#include <chrono>
#include <utility>

#include "base/priority.h"
#include "base/threads.h"
#include "train/training_state.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

/// Adds the time of its own life.
class Stopwatch {
 public:
  explicit Stopwatch(double& seconds) : seconds_(seconds) {}
  ~Stopwatch() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& seconds_;
  Clock::time_point start_ = Clock::now();
};

std::vector<std::span<const std::byte>> memory_of(const std::vector<CheckpointPiece>& pieces) {
  std::vector<std::span<const std::byte>> memory;
  memory.reserve(pieces.size());
  for (const auto& piece : pieces) memory.push_back(piece.bytes);
  return memory;
}

}  // namespace

CheckpointSaver::CheckpointSaver(const RunConfig& run, const CompiledRun& compiled, Executor& executor,
                                 Communicator& communicator)
    : run_(run), compiled_(compiled), executor_(executor), communicator_(communicator) {
  if (!run_.save_async) return;
  guard_.emplace(executor_, compiled_.programs.size(),
                 memory_of(checkpoint_pieces(executor_, compiled_.parameters, compiled_.sharding)), snapshot_);
  executor_.set_guard(&*guard_);
}

CheckpointSaver::~CheckpointSaver() {
  executor_.set_guard(nullptr);
  snapshot_.cancel();
  if (thread_.joinable()) thread_.join();
}

void CheckpointSaver::save(std::int64_t step, std::int64_t best, Json state, std::vector<KeptFile> files) {
  finish();
  const Stopwatch stopwatch(seconds_);
  best_ = best;
  const auto read = [this](std::span<const std::byte> from, std::span<std::byte> to) { executor_.read(from, to); };
  save_.emplace(run_.output_dir, step, checkpoint_pieces(executor_, compiled_.parameters, compiled_.sharding),
                std::move(state), std::move(files), communicator_,
                SavedMemory{executor_.save_buffers(), read, &snapshot_, run_.save_compressed});
  is_written_.store(false, std::memory_order_relaxed);
  snapshot_.begin();
  if (run_.save_async) {
    thread_ = std::jthread([this] {
      set_threads(1);
      lower_priority();  // the cores are the steps'
      save_->write();
      is_written_.store(true, std::memory_order_release);
    });
    return;
  }
  save_->write();
  commit();
}

void CheckpointSaver::end_step(bool any_is_writing) {
  if (!save_ || any_is_writing) return;
  const Stopwatch stopwatch(seconds_);
  commit();
}

void CheckpointSaver::finish() {
  const Stopwatch stopwatch(seconds_);
  if (save_) commit();
  if (thread_.joinable()) thread_.join();
}

void CheckpointSaver::commit() {
  if (thread_.joinable()) thread_.join();
  save_->commit();
  save_.reset();
  const auto remove_old = [this] {
    remove_old_checkpoints(run_.output_dir, run_.save_total_limit, run_.save_keep_steps, best_, communicator_);
  };
  if (run_.save_async) {
    thread_ = std::jthread([remove_old] {
      lower_priority();
      remove_old();
    });
  } else {
    remove_old();
  }
}

double CheckpointSaver::take_seconds() {
  const double waited = guard_ ? guard_->seconds() : 0;
  return std::exchange(seconds_, 0.0) + waited - std::exchange(waited_before_, waited);
}

}  // namespace heddle
