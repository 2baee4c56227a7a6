#include "base/threads.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

namespace heddle {
namespace {

/// Restores the number of threads, which is this thread's own.
class ThreadCount {
 public:
  explicit ThreadCount(int count) : before_(threads()) { set_threads(count); }
  ~ThreadCount() { set_threads(before_); }
  ThreadCount(const ThreadCount&) = delete;
  ThreadCount& operator=(const ThreadCount&) = delete;

 private:
  int before_;
};

TEST(ParallelFor, CoversEachIndexOnceForAnyNumberOfThreads) {
  for (const int count : {1, 2, 3, 8}) {
    const ThreadCount use(count);
    for (const std::int64_t indices : {0, 1, 2, 7, 1000}) {
      std::vector<int> visits(static_cast<std::size_t>(indices));  // plain ints: a race would show under TSan
      std::atomic<int> greatest_thread = 0;
      parallel_for(indices, [&](std::int64_t index, int thread) {
        ++visits[static_cast<std::size_t>(index)];
        int seen = greatest_thread.load();
        while (thread > seen && !greatest_thread.compare_exchange_weak(seen, thread)) {
        }
      });
      EXPECT_TRUE(std::all_of(visits.begin(), visits.end(), [](int n) { return n == 1; }))
          << count << " threads, " << indices << " indices";
      EXPECT_LT(greatest_thread, count);
    }
  }
}

TEST(ParallelFor, WhatThreadsWroteIsSeenAfterwards) {
  const ThreadCount use(4);
  std::vector<std::int64_t> squares(10000);
  for (int round = 0; round < 20; ++round) {
    parallel_for(10000, [&](std::int64_t i, int) { squares[static_cast<std::size_t>(i)] = i * i + round; });
    std::int64_t sum = 0;
    for (const auto square : squares) sum += square;
    ASSERT_EQ(sum, 9999LL * 10000 * 19999 / 6 + 10000LL * round);
  }
}

TEST(ParallelFor, EveryThreadBeginsWithItsShare) {
  constexpr int kThreads = 3;
  const ThreadCount use(kThreads);
  std::atomic<int> there = 0;
  std::array<std::vector<std::int64_t>, kThreads> taken;
  parallel_for(3 * kThreads, [&](std::int64_t index, int thread) {
    taken[static_cast<std::size_t>(thread)].push_back(index);
    if (taken[static_cast<std::size_t>(thread)].size() > 1) return;
    ++there;
    while (there < kThreads) std::this_thread::yield();  // so that every thread takes an index
  });
  std::size_t all = 0;
  for (int thread = 0; thread < kThreads; ++thread) {
    const auto& indices = taken[static_cast<std::size_t>(thread)];
    ASSERT_FALSE(indices.empty());
    EXPECT_EQ(indices[0], 3 * thread);
    all += indices.size();
  }
  EXPECT_EQ(all, 3u * kThreads);
}

TEST(ParallelFor, InOrderAnIndexMayWaitForALowerOne) {
  for (const int count : {1, 2, 5}) {
    const ThreadCount use(count);
    std::atomic<std::int64_t> done = 0;
    parallel_for_in_order(1000, [&](std::int64_t index, int) {
      while (done < index) std::this_thread::yield();
      ++done;
    });
    EXPECT_EQ(done, 1000);
  }
}

TEST(ParallelFor, ShortRegionsOneAfterAnotherKeepTheirIndicesApart) {
  for (const int count : {2, 3, 5}) {  // the last two crowd most machines that test this: threads come late
    const ThreadCount use(count);
    for (int round = 0; round < 5000; ++round) {
      const std::int64_t indices = round % 7;
      std::array<int, 7> visits{};  // plain ints on this stack: a thread that comes too late would spoil the next
      parallel_for(indices, [&visits](std::int64_t index, int) { ++visits[static_cast<std::size_t>(index)]; });
      for (std::int64_t i = 0; i < 7; ++i) {
        ASSERT_EQ(visits[static_cast<std::size_t>(i)], i < indices ? 1 : 0) << count << " threads, round " << round;
      }
      if (round % 1000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // threads fall asleep
    }
  }
}

TEST(ParallelFor, ANestedCallRunsOnTheThreadThatMadeIt) {
  const ThreadCount use(3);
  std::atomic<int> inner = 0, wrong = 0;
  parallel_for(6, [&](std::int64_t, int) {
    const auto outer_thread = std::this_thread::get_id();
    parallel_for(5, [&](std::int64_t, int thread) {
      ++inner;
      if (thread != 0 || std::this_thread::get_id() != outer_thread) ++wrong;
    });
  });
  EXPECT_EQ(inner, 30);
  EXPECT_EQ(wrong, 0);
}

/// The cores that each thread of a new team may run on.
std::vector<std::set<int>> places_of_team(int size) {
  std::vector<std::set<int>> places(static_cast<std::size_t>(size));
  std::thread caller([&] {
    set_threads(size);
    std::atomic<int> there = 0;
    parallel_for(size, [&](std::int64_t, int thread) {
      cpu_set_t set;
      CPU_ZERO(&set);
      ASSERT_EQ(pthread_getaffinity_np(pthread_self(), sizeof(set), &set), 0);
      for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &set)) places[static_cast<std::size_t>(thread)].insert(core);
      }
      ++there;
      while (there < size) std::this_thread::yield();  // so that every thread of the team takes an index
    });
  });
  caller.join();
  return places;
}

TEST(Threads, WorkersOfATeamThatTakesAllCoresHaveOneEachAndTheCallerIsFree) {
  const CoreSet cores = cores_of_process();
  const auto expected = cores_to_pin(cores, {}, available_cores());
  if (expected.empty()) GTEST_SKIP() << "one core, or the process is bound or limited: nothing is pinned";
  const auto places = places_of_team(available_cores());
  EXPECT_EQ(places[0], std::set<int>(cores.allowed.begin(), cores.allowed.end()));
  for (std::size_t i = 1; i < places.size(); ++i) EXPECT_EQ(places[i], std::set<int>{expected[i]});
}

TEST(Threads, MoreThreadsThanCoresAreLeftToTheSystem) {
  const std::vector<int> allowed = cores_of_process().allowed;
  for (const auto& place : places_of_team(available_cores() + 2)) {
    EXPECT_EQ(place, std::set<int>(allowed.begin(), allowed.end()));
  }
}

TEST(Threads, TheNumberIsNeverBelowOne) {
  const ThreadCount use(0);
  EXPECT_EQ(threads(), 1);
}

}  // namespace
}  // namespace heddle
