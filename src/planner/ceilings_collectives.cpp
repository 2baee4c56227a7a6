// Collectives over threads as ranks: what several ranks in one process pay for their steps.
#include <algorithm>
#include <chrono>
#include <vector>

#include "comm/job.h"
#include "planner/ceilings.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kBytes = std::int64_t{64} << 20;  // of the whole tensor

/// Seconds of the fastest call, over which the slowest rank counts.
template <typename Call>
double best_seconds(Communicator& communicator, int calls, const Call& call) {
  double best = 1e30;
  for (int i = 0; i < calls; ++i) {
    communicator.barrier("heddle bench");
    const auto start = Clock::now();
    call();
    double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    communicator.all_reduce(std::span(&seconds, 1), Reduction::max, "heddle bench");
    best = std::min(best, seconds);
  }
  return best;
}

}  // namespace

std::vector<CollectiveCeiling> measure_collectives(int ranks) {
  std::vector<CollectiveCeiling> result;
  run_ranks(ranks, [&](Communicator& communicator) {
    const auto count = static_cast<std::size_t>(ranks);
    const auto own = static_cast<std::size_t>(communicator.rank());
    const auto measure = [&](std::size_t bytes, int calls) {
      const std::size_t floats = bytes / sizeof(float) / count;  // of one rank's piece
      std::vector<float> whole(floats * count, 1.0f), piece(floats, 1.0f);
      const auto all = std::as_writable_bytes(std::span(whole)), mine = std::as_writable_bytes(std::span(piece));
      return std::vector<double>{
          best_seconds(communicator, calls, [&] { communicator.all_gather(mine, all, "heddle bench"); }),
          best_seconds(communicator, calls,
                       [&] { communicator.reduce_scatter(all, mine, DType::f32, {}, "heddle bench"); }),
          best_seconds(communicator, calls, [&] {
            communicator.all_reduce(all, DType::f32, Reduction::sum, Order::ordered, "heddle bench");
          })};
    };
    const auto large = measure(static_cast<std::size_t>(kBytes), 8);
    const auto small = measure(sizeof(float) * count, 200);
    if (own != 0) return 0;
    const auto bytes = kBytes / 4 / ranks * ranks * 4;
    const char* const names[] = {"all_gather", "reduce_scatter", "all_reduce"};
    for (std::size_t i = 0; i < 3; ++i) {
      result.push_back({names[i], ranks, bytes, static_cast<double>(bytes) / large[i], small[i]});
    }
    return 0;
  });
  return result;
}

}  // namespace heddle
