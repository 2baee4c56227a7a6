#include "train/movement_queue.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "tiers/arena.h"

namespace heddle {
namespace {

/// Has movements under way until advance(), which ends one; the third that is started, or the third end, fails if
/// asked.
class PlayedMover : public Mover {
 public:
  struct Log {
    std::atomic<int> most_under_way{0}, ended{0}, abandoned{0};
  };
  enum class Fault { none, at_start, at_end };
  PlayedMover(Log& log, Fault fault) : log_(log), fault_(fault) {}

  void start(const BoundMovement&, const Scalars&) override {
    if (fault_ == Fault::at_start && started_ == 2) throw std::runtime_error("start");
    ++started_;
    log_.most_under_way = std::max<int>(log_.most_under_way, static_cast<int>(unfinished()));
  }
  std::uint64_t unfinished() const override { return started_ - static_cast<std::uint64_t>(log_.ended); }
  void advance() override {
    if (fault_ == Fault::at_end && log_.ended == 2) throw std::runtime_error("end");
    ++log_.ended;
  }
  void abandon() noexcept override { ++log_.abandoned; }

 private:
  Log& log_;
  Fault fault_;
  std::uint64_t started_ = 0;
};

TEST(MovementQueue, WaitsForAMovementAndAllBeforeIt) {
  PlayedMover::Log log;
  MovementQueue queue(std::make_unique<PlayedMover>(log, PlayedMover::Fault::none));
  const BoundMovement movement;
  std::vector<std::uint64_t> tickets;
  for (int i = 0; i < 1000; ++i) tickets.push_back(queue.start(movement, {}));  // more than the queue has room for
  queue.wait(tickets[700]);
  EXPECT_GE(log.ended, 701);
  queue.wait(tickets.back());
  EXPECT_EQ(log.ended, 1000);
  EXPECT_GT(log.most_under_way, 1);
}

TEST(MovementQueue, AFailureReachesWhoeverWaitsAndNothingIsMovedAfterIt) {
  for (const auto fault : {PlayedMover::Fault::at_start, PlayedMover::Fault::at_end}) {
    PlayedMover::Log log;
    MovementQueue queue(std::make_unique<PlayedMover>(log, fault));
    const BoundMovement movement;
    std::uint64_t last = 0;
    for (int i = 0; i < 10; ++i) last = queue.start(movement, {});
    EXPECT_THROW(queue.wait(last), std::runtime_error);
    EXPECT_THROW(queue.wait(queue.start(movement, {})), std::runtime_error);
    EXPECT_EQ(log.abandoned, 1);
    EXPECT_LE(log.ended, 2);
  }
}

TEST(MovementQueue, TransfersAreInOrderThroughTheFileAndMemory) {
  constexpr std::size_t kBytes = std::size_t{1} << 16;
  const Arena memory(3 * kBytes, "test");
  const SwapFile file(std::filesystem::temp_directory_path(), kBytes);
  std::byte *const a = memory.data(), *const b = a + kBytes, *const c = b + kBytes;
  BoundMovement out, back, copy, early;
  early.transferred = {{nullptr, b, 0, kBytes}};  // zeros, still on their way when `out` is started
  out.transferred = {{a, nullptr, 0, kBytes}};
  back.transferred = {{nullptr, b, 0, kBytes}};
  copy.transferred = {{b, c, 0, kBytes}};
  MovementQueue queue(make_transfer_mover(file, {.block_size = 4096, .queue_depth = 4}));
  for (int value = 1; value < 20; ++value) {
    std::memset(a, value, kBytes);
    queue.start(early, {});
    queue.start(out, {});
    queue.start(back, {});
    queue.wait(queue.start(copy, {}));
    EXPECT_EQ(std::memcmp(a, c, kBytes), 0) << value;
  }
}

}  // namespace
}  // namespace heddle
