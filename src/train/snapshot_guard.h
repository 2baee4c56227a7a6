#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/snapshot.h"

namespace heddle {

class Executor;

/// Keeps instructions from changing what a save has not read yet. The pieces of a save are written in the order in
/// which an optimizer step updates them, so that the step waits, if at all, for its next tensor only.
class SnapshotGuard {
 public:
  /// `pieces`: the memory that saves read, in their order.
  SnapshotGuard(const Executor& executor, std::size_t programs, std::span<const std::span<const std::byte>> pieces,
                const Snapshot& snapshot);

  /// Before an instruction of a program runs. True: it had to wait.
  bool before(std::size_t program, std::size_t instruction) {
    const std::uint64_t position = needed_[program][instruction];
    return position > 0 && !snapshot_.has_reached(position) && wait_for(position);
  }
  /// Spent waiting so far.
  double seconds() const { return seconds_; }
  /// Where the save must have got to before the instruction runs, in bytes of the pieces; 0: it changes none of them.
  std::uint64_t needed(std::size_t program, std::size_t instruction) const { return needed_[program][instruction]; }

 private:
  bool wait_for(std::uint64_t position);

  const Snapshot& snapshot_;
  std::vector<std::vector<std::uint64_t>> needed_;  // by program and instruction
  double seconds_ = 0;
};

}  // namespace heddle
