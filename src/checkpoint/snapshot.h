#pragma once

#include <atomic>
#include <cstdint>

namespace heddle {

/// How far a save has read the memory that it saves, between the threads that save and the one that is about to change
/// that memory. Positions count the bytes of a save's pieces, in their order. While no save is under way, all is read.
class Snapshot {
 public:
  /// By the owner, while no other thread uses it.
  void begin() {
    is_cancelled_.store(false, std::memory_order_relaxed);
    read_.store(0, std::memory_order_release);
  }
  /// By the threads that save: everything before `position` is read.
  void reach(std::uint64_t position) { set(position); }
  /// Nothing is read any more: the save has it all, or has failed.
  void end() { set(kEverything); }

  /// By who changes memory: whether what lies before `position` is read, and waiting until it is.
  bool has_reached(std::uint64_t position) const { return read_.load(std::memory_order_acquire) >= position; }
  void wait_for(std::uint64_t position) const {
    for (auto read = read_.load(std::memory_order_acquire); read < position;
         read = read_.load(std::memory_order_acquire)) {
      read_.wait(read, std::memory_order_acquire);
    }
  }

  /// The save is no longer wanted; its threads stop at the next chunk.
  void cancel() { is_cancelled_.store(true, std::memory_order_relaxed); }
  bool is_cancelled() const { return is_cancelled_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::uint64_t kEverything = UINT64_MAX;
  void set(std::uint64_t position) {
    read_.store(position, std::memory_order_release);
    read_.notify_all();
  }

  std::atomic<std::uint64_t> read_{kEverything};
  std::atomic<bool> is_cancelled_{false};
};

}  // namespace heddle
