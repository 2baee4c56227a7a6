#include "base/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace heddle {
namespace {

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

/// Two lines of a cache, since processors bring them near in pairs.
constexpr std::size_t kLineBytes = 128;

thread_local bool is_inside_region = false;

void pin_this_thread(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);  // where it fails, the system places the thread
}

/// The threads that serve one calling thread. A region is open while its caller works on it; a worker joins it only
/// while it is open, and the caller waits only for those that joined. So a worker that sleeps, or that was pushed off
/// its core, costs its share of the work and no more (OpenMP's barriers wait for every thread, by spinning).
/// Workers alone are pinned: a caller's threads of other kinds would inherit its core, and the one that is left is its.
class Team {
 public:
  /// `cores`: of each thread, or empty.
  explicit Team(std::vector<int> cores) : cores_(std::move(cores)) {}
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() {
    stop_ = true;
    wake_all();
    for (auto& worker : workers_) worker.join();
  }

  /// Threads spin for each other for a moment unless they are `crowded`, more than cores.
  void run(int size, bool crowded, std::int64_t count, detail::HandOut hand_out, detail::Body body, void* context) {
    while (workers_.size() + 1 < static_cast<std::size_t>(size)) {
      workers_.emplace_back([this, index = workers_.size() + 1] {
        if (index < cores_.size()) pin_this_thread(cores_[index]);
        serve(static_cast<int>(index));
      });
    }
    patience_.store(crowded ? 0 : kPausesBeforeSleep, std::memory_order_relaxed);
    body_ = body;
    context_ = context;
    size_ = size;
    deal(count, hand_out == detail::HandOut::in_order ? 1 : size);
    state_.fetch_add(kGeneration, std::memory_order_release);  // opens
    wake_all();
    work(0);
    state_.fetch_add(kGeneration, std::memory_order_acq_rel);  // closes: nobody joins any more
    int pauses = 0;
    const int patience = patience_.load(std::memory_order_relaxed);
    while ((state_.load(std::memory_order_acquire) & kJoinedMask) != 0) {
      if (++pauses < patience) {
        pause_core();
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  static constexpr std::uint64_t kGeneration = std::uint64_t{1} << 16, kJoinedMask = kGeneration - 1;
  static bool is_open(std::uint64_t state) { return ((state >> 16) & 1) != 0; }

  /// Indices that one thread takes first.
  struct alignas(kLineBytes) Share {
    std::atomic<std::int64_t> next{0};
    std::int64_t end = 0;
  };

  void wake_all() {
    wake_.fetch_add(1, std::memory_order_release);
    wake_.notify_all();
  }

  /// Cuts [0, count) into `shares`.
  void deal(std::int64_t count, int shares) {
    if (shares > room_) {
      shares_ = std::make_unique<Share[]>(static_cast<std::size_t>(shares));
      room_ = shares;
    }
    share_count_ = shares;
    for (std::int64_t i = 0; i < shares; ++i) {
      shares_[i].next.store(count * i / shares, std::memory_order_relaxed);
      shares_[i].end = count * (i + 1) / shares;
    }
  }

  void take_all(Share& share, int thread) {
    if (share.next.load(std::memory_order_relaxed) >= share.end) return;
    for (;;) {
      const std::int64_t index = share.next.fetch_add(1, std::memory_order_relaxed);
      if (index >= share.end) return;
      body_(context_, index, thread);
    }
  }

  void work(int thread) {
    is_inside_region = true;
    if (thread < share_count_) take_all(shares_[thread], thread);
    for (int i = 0; i < share_count_; ++i) take_all(shares_[i], thread);
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
      const int patience = patience_.load(std::memory_order_relaxed);
      while (wake_.load(std::memory_order_acquire) == seen && ++pauses < patience) pause_core();
      wake_.wait(seen, std::memory_order_acquire);
      seen = wake_.load(std::memory_order_acquire);
      join_region(thread);
    }
  }

  const std::vector<int> cores_;
  std::vector<std::thread> workers_;
  std::atomic<int> patience_{0};
  std::atomic<bool> stop_{false};
  std::atomic<std::uint32_t> wake_{0};
  std::atomic<std::uint64_t> state_{0};  // generation << 16 | workers that joined; an odd generation is open
  // Of the open region; written while it is closed.
  detail::Body body_ = nullptr;
  void* context_ = nullptr;
  int size_ = 0;
  std::unique_ptr<Share[]> shares_;
  int share_count_ = 0, room_ = 0;
};

struct Choice {
  int threads = 0;  // 0: not chosen yet
  bool is_crowded = false;
  std::vector<int> cores;
};
thread_local Choice choice;
thread_local std::unique_ptr<Team> team;

}  // namespace

void set_threads(int threads, CoreShare share) {
  const CoreSet cores = cores_of_process();
  choice.threads = std::max(1, threads);
  choice.is_crowded = choice.threads > std::max(1, share.size(cores.usable()));
  choice.cores = cores_to_pin(cores, share, choice.threads);
}

int threads() {
  if (choice.threads == 0) set_threads(available_cores());
  return choice.threads;
}

namespace detail {

void run_parallel(std::int64_t count, HandOut hand_out, Body body, void* context) {
  const int size = is_inside_region ? 1 : static_cast<int>(std::min<std::int64_t>(threads(), count));
  if (size <= 1) {
    for (std::int64_t index = 0; index < count; ++index) body(context, index, 0);
    return;
  }
  if (!team) team = std::make_unique<Team>(choice.cores);
  team->run(size, choice.is_crowded, count, hand_out, body, context);
}

}  // namespace detail
}  // namespace heddle
