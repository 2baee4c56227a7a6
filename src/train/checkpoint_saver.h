#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <thread>
#include <vector>

#include "checkpoint/save.h"
#include "comm/communicator.h"
#include "config/run_config.h"
#include "train/compile.h"
#include "train/executor.h"
#include "train/snapshot_guard.h"

namespace heddle {

/// Saves the checkpoints of a run: at once, or (save_async) while its steps go on, one at a time. Then a thread writes
/// the tensors from where they lie, and an optimizer step that would change them waits for it, tensor by tensor
/// (SnapshotGuard). Only rank 0's thread and each rank's own files are at work meanwhile; what ranks say to each other,
/// they say between steps.
class CheckpointSaver {
 public:
  CheckpointSaver(const RunConfig& run, const CompiledRun& compiled, Executor& executor, Communicator& communicator);
  ~CheckpointSaver();  // gives up a save that is under way
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// On all ranks between two steps: saves, or begins to. `best`: the step whose checkpoint is kept whatever the limit;
  /// 0: none. Throws Error where this save fails, or one before it that was under way.
  void save(std::int64_t step, std::int64_t best, Json state, std::vector<KeptFile> files);
  /// Whether this rank has a save whose files are not written yet.
  bool is_writing() const { return save_.has_value() && !is_written_.load(std::memory_order_acquire); }
  /// On all ranks after each step: gives a save its name, if no rank is writing.
  void end_step(bool any_is_writing);
  /// On all ranks: waits for a save that is under way, and gives it its name.
  void finish();

  /// Seconds that steps have lost to saving since the last call.
  double take_seconds();

 private:
  void commit();

  const RunConfig& run_;
  const CompiledRun& compiled_;
  Executor& executor_;
  Communicator& communicator_;
  Snapshot snapshot_;
  std::optional<SnapshotGuard> guard_;  // of asynchronous saves
  std::optional<CheckpointSave> save_;
  std::int64_t best_ = 0;
  std::atomic<bool> is_written_{false};
  double seconds_ = 0, waited_before_ = 0;
  std::jthread thread_;  // writes, or removes old checkpoints
};

}  // namespace heddle
