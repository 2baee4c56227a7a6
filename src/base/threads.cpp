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

/// The threads that serve one calling thread. A worker takes part in a region by taking an index of it, and the caller
/// waits only for those who did. So a worker that sleeps, or that was pushed off its core, costs its share of the work
/// and no more (OpenMP's barriers wait for every thread, by spinning). Where cores share no cache, each line that goes
/// from one to the other takes longer than a thousand multiply-adds: what a worker is told is one line, which it spins
/// on, and what it answers is another.
/// Workers alone are pinned: a caller's threads of other kinds would inherit its core, and the one that is left is its.
class Team {
 public:
  /// `cores`: of each thread, or empty.
  explicit Team(std::vector<int> cores) : cores_(std::move(cores)) {}
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team() { dismiss(); }

  /// On `size` of `threads` threads. They spin for each other for a moment unless they are `crowded`, more than cores.
  void run(int size, int threads, bool crowded, std::int64_t count, detail::HandOut hand_out, detail::Body body,
           void* context) {
    if (size > room_) hire(std::max(size, threads));
    generation_ = (generation_ + 1) % kGenerations;
    const Region region = {generation_, count, hand_out == detail::HandOut::in_order ? 1 : size, body, context};
    const int patience = crowded ? 0 : kPausesBeforeSleep;
    for (int thread = 0; thread < size; ++thread) desks_[thread].open(region, thread, patience);
    wake_up(size);
    const std::int64_t others = count - work(region, 0);
    for (int pauses = 0; done_by_workers(size) < others;) {
      if (++pauses < patience) {
        pause_core();
      } else {
        std::this_thread::yield();
      }
    }
  }

 private:
  // Places are a generation and an index in one word: nobody takes an index of a region that is not the one he knows.
  static constexpr int kIndexBits = 36;
  static constexpr std::uint64_t kGenerations = std::uint64_t{1} << (64 - kIndexBits);
  static std::uint64_t place(std::uint64_t generation, std::int64_t index) {
    return generation << kIndexBits | static_cast<std::uint64_t>(index);
  }
  static std::uint64_t generation_of(std::uint64_t place) { return place >> kIndexBits; }
  static std::int64_t index_of(std::uint64_t place) {
    return static_cast<std::int64_t>(place & ((std::uint64_t{1} << kIndexBits) - 1));
  }

  // ThreadSanitizer knows no fences.
#if defined(__SANITIZE_THREAD__)
  static constexpr auto kOrderOfOpening = std::memory_order_seq_cst;
#else
  static constexpr auto kOrderOfOpening = std::memory_order_release;
#endif

  struct Region {
    std::uint64_t generation;
    std::int64_t count;
    int shares;
    detail::Body body;  // null: workers end
    void* context;

    std::int64_t begin_of(int share) const { return count * share / shares; }
  };

  /// Of one thread.
  struct alignas(kLineBytes) Desk {
    // What the caller tells, in the order in which it is written, `next` last.
    std::atomic<std::uint64_t> count{0};  // as a place
    std::atomic<detail::Body> body{nullptr};
    std::atomic<void*> context{nullptr};
    std::atomic<int> shares{0}, patience{0};
    std::atomic<std::uint64_t> next{0};  // place that is taken next of this share
    // What the worker answers.
    alignas(kLineBytes) std::atomic<std::uint64_t> done{0};  // indices, as a place
    std::atomic<std::uint32_t> wakings{0};
    std::atomic<bool> is_asleep{false};

    void open(const Region& region, int thread, int patience_of_worker) {
      count.store(place(region.generation, region.count), std::memory_order_relaxed);
      body.store(region.body, std::memory_order_release);
      context.store(region.context, std::memory_order_release);
      shares.store(region.shares, std::memory_order_release);
      patience.store(patience_of_worker, std::memory_order_relaxed);
      const std::int64_t first = thread < region.shares ? region.begin_of(thread) : 0;
      next.store(place(region.generation, first), kOrderOfOpening);
    }
    /// The region of that generation; false if the next one is being written, and so this one is over.
    bool read(std::uint64_t generation, Region& region) const {
      region.generation = generation;
      region.shares = shares.load(std::memory_order_acquire);
      region.context = context.load(std::memory_order_acquire);
      region.body = body.load(std::memory_order_acquire);
      const std::uint64_t counted = count.load(std::memory_order_relaxed);  // written before the others, read behind
      region.count = index_of(counted);
      return generation_of(counted) == generation;
    }
    void wake_up() {
      if (!is_asleep.load(std::memory_order_seq_cst)) return;
      wakings.fetch_add(1, std::memory_order_release);
      wakings.notify_one();
    }
    /// Waits for a region behind `seen`, spinning at first.
    std::uint64_t wait(std::uint64_t seen) {
      for (int pauses = 0, most = patience.load(std::memory_order_relaxed);;) {
        const std::uint64_t generation = generation_of(next.load(std::memory_order_acquire));
        if (generation != seen) return generation;
        if (++pauses < most) {
          pause_core();
        } else {
          rest(seen);
        }
      }
    }
    void rest(std::uint64_t seen) {
      const std::uint32_t before = wakings.load(std::memory_order_acquire);
      is_asleep.store(true, std::memory_order_seq_cst);
      if (generation_of(next.load(std::memory_order_seq_cst)) == seen) wakings.wait(before, std::memory_order_acquire);
      is_asleep.store(false, std::memory_order_relaxed);
    }
  };

  /// Those that sleep. Either they are seen asleep, or they see that a region is open, in rest().
  void wake_up(int size) {
#if !defined(__SANITIZE_THREAD__)
    std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
    for (int thread = 1; thread < size; ++thread) desks_[thread].wake_up();
  }

  std::int64_t done_by_workers(int size) const {
    std::int64_t sum = 0;
    for (int thread = 1; thread < size; ++thread) {
      const std::uint64_t done = desks_[thread].done.load(std::memory_order_acquire);
      if (generation_of(done) == generation_) sum += index_of(done);
    }
    return sum;
  }

  /// Takes what is left of a share; returns how many indices that were.
  std::int64_t take_share(const Region& region, int share, int thread) {
    std::atomic<std::uint64_t>& next = desks_[share].next;
    const std::int64_t end = region.begin_of(share + 1);
    std::int64_t taken = 0;
    std::uint64_t at = next.load(std::memory_order_relaxed);
    while (generation_of(at) == region.generation && index_of(at) < end) {
      if (!next.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) continue;
      region.body(region.context, index_of(at), thread);
      ++taken;
      ++at;
    }
    return taken;
  }

  /// Works on a region until all its indices are taken; returns how many this thread took.
  std::int64_t work(const Region& region, int thread) {
    is_inside_region = true;
    std::int64_t taken = thread < region.shares ? take_share(region, thread, thread) : 0;
    for (int share = 0; share < region.shares; ++share) taken += take_share(region, share, thread);
    is_inside_region = false;
    return taken;
  }

  void serve(int thread) {
    Desk& desk = desks_[thread];
    for (std::uint64_t seen = 0;;) {
      seen = desk.wait(seen);
      Region region;
      if (!desk.read(seen, region)) continue;
      if (region.body == nullptr) return;
      const std::int64_t taken = work(region, thread);
      if (taken > 0) desk.done.store(place(seen, taken), std::memory_order_release);
    }
  }

  void hire(int size) {
    dismiss();
    desks_ = std::make_unique<Desk[]>(static_cast<std::size_t>(size));
    room_ = size;
    for (int thread = 1; thread < size; ++thread) {
      workers_.emplace_back([this, thread] {
        if (static_cast<std::size_t>(thread) < cores_.size()) pin_this_thread(cores_[static_cast<std::size_t>(thread)]);
        serve(thread);
      });
    }
  }
  void dismiss() {
    generation_ = (generation_ + 1) % kGenerations;
    for (int thread = 1; thread < room_; ++thread)
      desks_[thread].open({generation_, 0, 0, nullptr, nullptr}, thread, 0);
    wake_up(room_);
    for (auto& worker : workers_) worker.join();
    workers_.clear();
    room_ = 0;
    generation_ = 0;
  }

  const std::vector<int> cores_;
  std::vector<std::thread> workers_;
  std::unique_ptr<Desk[]> desks_;
  int room_ = 0;
  std::uint64_t generation_ = 0;
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
  team->run(size, choice.threads, choice.is_crowded, count, hand_out, body, context);
}

}  // namespace detail
}  // namespace heddle
