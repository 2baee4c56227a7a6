#include "base/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace heddle {
namespace {

/// Cores allowed by the cgroup's quota (version 2, then 1), or 0 where there is none.
int quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (file >> quota >> period && quota != "max" && period > 0) {
    return std::max(1, static_cast<int>(std::stod(quota) / period));
  }
  std::ifstream old_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), old_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double microseconds = 0;
  if (old_quota >> microseconds && old_period >> period && microseconds > 0 && period > 0) {
    return std::max(1, static_cast<int>(microseconds / period));
  }
  return 0;
}

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Some tens of microseconds: longer than the gap between two kernels of a step, shorter than a time slice, so that a
/// core that others want is given up.
constexpr int kPausesBeforeSleep = 1000;

thread_local bool is_inside_region = false;

/// The threads that serve one calling thread. A region is open while its caller works on it; a worker joins it only
/// while it is open, and the caller waits only for those that joined. So a worker that sleeps, or that was pushed off
/// its core, costs its share of the work and no more (OpenMP's barriers wait for every thread, by spinning).
class Team {
 public:
  ~Team() {
    stop_ = true;
    wake_all();
    for (auto& worker : workers_) worker.join();
  }

  void run(int size, std::int64_t count, detail::Body body, void* context) {
    while (static_cast<int>(workers_.size()) + 1 < size) {
      workers_.emplace_back([this, index = static_cast<int>(workers_.size()) + 1] { serve(index); });
    }
    body_ = body;
    context_ = context;
    count_ = count;
    size_ = size;
    next_.store(0, std::memory_order_relaxed);
    state_.fetch_add(kGeneration, std::memory_order_release);  // opens
    wake_all();
    work(0);
    state_.fetch_add(kGeneration, std::memory_order_acq_rel);  // closes: nobody joins any more
    int pauses = 0;
    while ((state_.load(std::memory_order_acquire) & kJoinedMask) != 0) {
      if (++pauses < kPausesBeforeSleep) {
        pause_core();
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  static constexpr std::uint64_t kGeneration = std::uint64_t{1} << 16, kJoinedMask = kGeneration - 1;
  static bool is_open(std::uint64_t state) { return ((state >> 16) & 1) != 0; }

  void wake_all() {
    wake_.fetch_add(1, std::memory_order_release);
    wake_.notify_all();
  }

  void work(int thread) {
    is_inside_region = true;
    for (;;) {
      const std::int64_t index = next_.fetch_add(1, std::memory_order_relaxed);
      if (index >= count_) break;
      body_(context_, index, thread);
    }
    is_inside_region = false;
  }

  /// Joins the region that is open now, if any, and works on it.
  void join_region(int thread) {
    std::uint64_t state = state_.load(std::memory_order_acquire);
    while (is_open(state)) {
      if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel, std::memory_order_acquire))
        continue;
      if (thread < size_) work(thread);
      state_.fetch_sub(1, std::memory_order_release);
      return;
    }
  }

  void serve(int thread) {
    std::uint32_t seen = 0;
    while (!stop_) {
      int pauses = 0;
      while (wake_.load(std::memory_order_acquire) == seen && ++pauses < kPausesBeforeSleep) pause_core();
      wake_.wait(seen, std::memory_order_acquire);
      seen = wake_.load(std::memory_order_acquire);
      join_region(thread);
    }
  }

  std::vector<std::thread> workers_;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint32_t> wake_{0};
  std::atomic<std::uint64_t> state_{0};  // generation << 16 | workers that joined; an odd generation is open
  std::atomic<std::int64_t> next_{0};
  // Of the open region; written while it is closed.
  detail::Body body_ = nullptr;
  void* context_ = nullptr;
  std::int64_t count_ = 0;
  int size_ = 0;
};

thread_local int chosen_threads = 0;
thread_local std::unique_ptr<Team> team;

}  // namespace

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  if (const int quota = quota_cores(); quota > 0) cores = std::min(cores, quota);
  return std::max(1, cores);
}

void set_threads(int threads) { chosen_threads = std::max(1, threads); }

int threads() {
  if (chosen_threads == 0) chosen_threads = available_cores();
  return chosen_threads;
}

namespace detail {

void run_parallel(std::int64_t count, Body body, void* context) {
  const int size = is_inside_region ? 1 : static_cast<int>(std::min<std::int64_t>(threads(), count));
  if (size <= 1) {
    for (std::int64_t index = 0; index < count; ++index) body(context, index, 0);
    return;
  }
  if (!team) team = std::make_unique<Team>();
  team->run(size, count, body, context);
}

}  // namespace detail
}  // namespace heddle
