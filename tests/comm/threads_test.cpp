#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "collectives.h"
#include "comm/job.h"

namespace heddle {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class Ranks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Sizes, Ranks, testing::Values(1, 2, 3, 4, 8));

TEST_P(Ranks, CollectivesEqualPlainFormulas) {
  run_ranks(GetParam(), [](Communicator& communicator) {
    collectives::check_all(communicator);
    return 0;
  });
}

TEST(Collectives, OrderOfASumShowsInTheTestsValues) {
  int different = 0;
  for (std::size_t k = 0; k < 100; ++k) {
    const float a = collectives::value<float>(0, 0, k), b = collectives::value<float>(0, 1, k),
                c = collectives::value<float>(0, 2, k);
    different += (a + b) + c != a + (b + c) ? 1 : 0;
  }
  EXPECT_GT(different, 10);
}

/// The text of the error that the job ends with; "" if it does not.
std::string failure_of(int ranks, const std::function<void(Communicator&)>& body, const JobOptions& options = {}) {
  try {
    run_ranks(
        ranks,
        [&](Communicator& communicator) {
          body(communicator);
          return 0;
        },
        options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RunRanks, RefusesMoreThanAProcessHolds) {
  EXPECT_EQ(failure_of(1 << 20, [](Communicator&) {}),
            "1048576 ranks in one process; expected at most 4096: mpirun or srun start them as processes");
}

TEST(RunRanks, GivesTheGreatestExitCode) {
  EXPECT_EQ(run_ranks(4, [](Communicator& communicator) { return communicator.rank() == 2 ? 143 : 0; }), 143);
  EXPECT_EQ(run_ranks(1, [](Communicator&) { return 130; }), 130);
}

TEST(RunRanks, AFailureWakesRanksInEveryCall) {
  float number = 1;
  const std::vector<std::function<void(Communicator&)>> calls = {
      [](Communicator& c) {
        float value = 1;
        c.all_reduce(std::span(&value, 1));
      },
      [](Communicator& c) { c.barrier(); },
      [](Communicator& c) { c.split(0, 0); },
      [](Communicator& c) {
        std::byte byte{};
        c.receive(std::span(&byte, 1), 1, 0);
      },
      [&](Communicator& c) { c.send(std::as_bytes(std::span(&number, 1)), 1, 0); },
      [](Communicator& c) {  // in a group that the failing rank is not in
        const auto group = c.split(c.rank() == 1 ? 1 : 0, 0);
        std::byte byte{};
        if (c.rank() == 0) group->receive(std::span(&byte, 1), 1, 0);
        c.barrier();
      },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    std::atomic<int> woken{0};
    const std::string text = failure_of(4, [&](Communicator& communicator) {
      if (communicator.rank() == 1) {
        if (i == 5) communicator.split(1, 0);
        fail("rows.jsonl:9: no such token");
      }
      try {
        calls[i](communicator);
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 1 failed: rows.jsonl:9: no such token"));
        ++woken;
        throw;
      }
    });
    EXPECT_EQ(text, "rank 1: rows.jsonl:9: no such token") << "call " << i;
    EXPECT_EQ(woken, 3) << "call " << i;
  }
}

TEST(RunRanks, KeepsThatAFailureWasWrongUsage) {
  EXPECT_THROW(run_ranks(2,
                         [](Communicator& communicator) -> int {
                           if (communicator.rank() == 1) throw UsageError("no such option");
                           communicator.barrier();
                           return 0;
                         }),
               UsageError);
}

TEST(RunRanks, AnythingThrownIsAFailure) {
  EXPECT_EQ(failure_of(2,
                       [](Communicator& communicator) {
                         if (communicator.rank() == 0) throw std::runtime_error("out of paper");
                         communicator.barrier();
                       }),
            "rank 0: out of paper");
}

TEST(RunRanks, ARankThatEndedIsNotWaitedFor) {
  EXPECT_EQ(failure_of(3,
                       [](Communicator& communicator) {
                         if (communicator.rank() != 2) communicator.barrier("step 4");
                       })
                .substr(8),
            "barrier (step 4) waits for rank 2, which has ended");
}

TEST(RunRanks, AStalledCollectiveIsNamedWithTheRanksThatAreMissing) {
  JobOptions options;
  options.time_limit = milliseconds(500);
  std::atomic<bool> is_over{false};
  const std::string text = failure_of(
      4,
      [&](Communicator& communicator) {
        communicator.barrier();  // so that ranks 0 and 2 arrive together
        if (communicator.rank() % 2 == 1) {
          while (!is_over) std::this_thread::sleep_for(milliseconds(1));
          return;
        }
        try {
          std::byte mine{};
          std::vector<std::byte> all(4);
          communicator.all_gather(std::span(&mine, 1), all, "weights of model.layers.3");
        } catch (const Error&) {
          is_over = true;
          throw;
        }
      },
      options);
  EXPECT_THAT(text, HasSubstr("all_gather (weights of model.layers.3) waited 0.5 s for ranks 1, 3"));
}

TEST(RunRanks, AReceiveWithoutASendIsNamed) {
  JobOptions options;
  options.time_limit = milliseconds(100);
  const std::string text = failure_of(
      2,
      [](Communicator& communicator) {
        std::byte byte{};
        communicator.receive(std::span(&byte, 1), 1 - communicator.rank(), 0, "activations");
      },
      options);
  EXPECT_THAT(text, HasSubstr("receive (activations) waited 0.1 s for rank "));
}

TEST(RunRanksDeathTest, AThreadThatNeverEndsIsNotWaitedForAfterAFailure) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto job = [] {
    JobOptions options;
    options.grace = milliseconds(100);
    run_ranks(
        3,
        [](Communicator& communicator) -> int {
          if (communicator.rank() == 0) fail("no space left");
          for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
        },
        options);
  };
  EXPECT_EXIT(job(), testing::ExitedWithCode(1),
              "heddle: error: rank 0 failed: no space left; no end of ranks 1, 2 within 0.1 s");
}

TEST(Communicator, RanksThatMakeDifferentCallsAreToldSo) {
  EXPECT_THAT(failure_of(3,
                         [](Communicator& communicator) {
                           std::vector<std::byte> bytes(12);
                           if (communicator.rank() == 2) {
                             communicator.broadcast(bytes, 0, "head");
                           } else {
                             communicator.all_gather(std::vector<std::byte>(4), bytes, "embedding");
                           }
                         }),
              HasSubstr("ranks do not make the same call: rank 0 calls all_gather (embedding) of 4 bytes; rank 2 calls "
                        "broadcast (head) of 12 bytes from rank 0"));
  EXPECT_THAT(
      failure_of(2,
                 [](Communicator& communicator) {
                   std::vector<float> values(communicator.rank() == 0 ? 3 : 4);
                   communicator.all_reduce(std::span(values));
                 }),
      HasSubstr("rank 0 calls all_reduce of 12 float32 bytes, sum; rank 1 calls all_reduce of 16 float32 bytes, sum"));
  EXPECT_THAT(failure_of(2,
                         [](Communicator& communicator) {
                           std::vector<std::byte> bytes(communicator.rank() == 0 ? 3 : 4);
                           if (communicator.rank() == 0) communicator.send(bytes, 1, 6, "activations");
                           if (communicator.rank() == 1) communicator.receive(bytes, 0, 6, "activations");
                         }),
              HasSubstr("(activations): rank 0 sends 3 bytes with tag 6, rank 1 expects 4"));
  EXPECT_THAT(failure_of(2,
                         [](Communicator& communicator) {
                           std::vector<std::byte> ten(10), eleven(11);
                           const std::span<const std::byte> out[] = {ten, ten};
                           const std::span<std::byte> in[] = {ten, communicator.rank() == 0 ? eleven : ten};
                           const std::span<std::byte> back[] = {ten, ten};
                           communicator.all_to_all(out, communicator.rank() == 0 ? in : back, "tokens");
                         }),
              HasSubstr("all_to_all (tokens): rank 1 sends 10 bytes to rank 0, which expects 11"));
}

TEST(Communicator, WrongArgumentsAreRefused) {
  const auto c = alone();
  std::vector<std::byte> bytes(16);
  const std::span<std::byte> all(bytes);
  EXPECT_THROW(c->all_gather(all.first(3), all), Error);
  EXPECT_THROW(c->all_gather(all.first(8), all.subspan(4, 8)), Error);             // overlap, not in place
  EXPECT_THROW(c->reduce_scatter(all, all, DType::f32, {true, -1, {}}), Error);    // in place, and added to
  EXPECT_THROW(c->reduce_scatter(all.first(8), all, DType::f32), Error);           // sizes
  EXPECT_THROW(c->reduce_scatter({}, all, DType::bf16, {true, 1, {}}), Error);     // type
  EXPECT_THROW(c->reduce_scatter(all, all, DType::f32, {false, 2, {}}), Error);    // more active than there are
  EXPECT_THROW(c->all_reduce(all.first(3), DType::f32), Error);                    // part of a value
  EXPECT_THROW(c->broadcast(all, 1), Error);                                       // no such rank
  EXPECT_THROW(c->send(all, 0, 0), Error);                                         // to itself
  EXPECT_THROW(c->exchange(all.first(3), 0, all.subspan(3, 2), 0, 0), Error);      // sizes
  EXPECT_THROW(c->exchange(all.first(3), 0, all.subspan(3, 3), 0, 1'000), Error);  // tag
}

TEST(Communicator, CountsWhatTheFormulasSay) {
  run_ranks(4, [](Communicator& c) {
    std::vector<std::byte> all(4 * 96);
    const std::span<std::byte> whole(all), own = whole.subspan(static_cast<std::size_t>(c.rank()) * 96, 96);
    std::vector<std::byte> sums(96);
    c.all_gather(own, whole);
    c.reduce_scatter(whole, sums, DType::f32);
    c.reduce_scatter(whole, sums, DType::f32, {true, 3, Order::ordered});
    c.all_reduce(whole, DType::f32);
    c.barrier();
    // (N-1)/N of Psi each way for a gather or a scatter of Psi bytes, twice that for an all-reduce.
    const auto expect = [&](Collective kind, std::int64_t calls, std::int64_t sent, std::int64_t received,
                            std::int64_t volume) {
      const Traffic& traffic = c.counters().of(kind);
      EXPECT_EQ(traffic.calls, calls) << collective_name(kind);
      EXPECT_EQ(traffic.bytes_sent, sent) << collective_name(kind);
      EXPECT_EQ(traffic.bytes_received, received) << collective_name(kind);
      EXPECT_EQ(traffic.volume, volume) << collective_name(kind);
      EXPECT_GT(traffic.seconds, 0) << collective_name(kind);
    };
    const bool is_active = c.rank() < 3;
    expect(Collective::all_gather, 1, 288, 288, 384);
    expect(Collective::reduce_scatter, 2, is_active ? 576 : 288, 288 + (is_active ? 192 : 288), 768);
    expect(Collective::all_reduce, 1, 576, 576, 768);
    expect(Collective::barrier, 1, 0, 0, 0);
    EXPECT_EQ(c.counters().total().calls, 5);
    EXPECT_EQ(c.counters().total().volume, 384 + 768 + 768);
    c.reset_counters();
    EXPECT_EQ(c.counters().total().calls, 0);
    return 0;
  });
}

TEST(Communicator, GroupsWorkAtTheSameTime) {
  run_ranks(4, [](Communicator& c) {
    const auto twin = c.split(0, 0);
    const auto sum = [](Communicator& group, std::int64_t start) {
      for (int round = 0; round < 200; ++round) {
        std::vector<std::int64_t> value{start + group.rank()};
        group.all_reduce(std::span(value));
        EXPECT_EQ(value[0], 4 * start + 6);
      }
    };
    std::thread other([&] { sum(*twin, 100); });
    sum(c, 7);
    other.join();
    return 0;
  });
}

TEST(Communicator, RanksDivideTheCores) {
  std::atomic<int> cores{0};
  const int ranks = 2;
  run_ranks(ranks, [&](Communicator& c) {
    EXPECT_EQ(c.ranks_on_host(), ranks);
    EXPECT_EQ(c.rank_on_host(), c.rank());
    EXPECT_EQ(c.transport(), "threads");
    EXPECT_EQ(c.staging_bytes(), 0U);
    cores += c.cores();
    return 0;
  });
  EXPECT_EQ(cores, std::max(ranks, available_cores()));
  EXPECT_EQ(alone()->cores(), available_cores());
}

}  // namespace
}  // namespace heddle
