// Every test runs on the kernel's queue (skipped aloud where there is none) and on threads; what disks do wrong comes
// from a queue that plays one.
#include "tiers/swap_transfers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tiers/arena.h"

namespace heddle {
namespace {

using testing::HasSubstr;

constexpr std::size_t kPage = 4096;

class TransferFolder {
 public:
  TransferFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "heddle-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TransferFolder() { std::filesystem::remove_all(path_); }
  TransferFolder(const TransferFolder&) = delete;
  TransferFolder& operator=(const TransferFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void fill(std::span<std::byte> memory, unsigned seed) {
  std::minstd_rand random(seed);
  for (auto& value : memory) value = static_cast<std::byte>(random());
}

/// Reads, writes and copies that overlap in memory and in the file, both of `bytes` (memory twice).
void expect_mixture_in_order(SwapTransfers& transfers, const Arena& arena, std::size_t bytes) {
  fill({arena.data(), bytes}, 5);
  std::vector<std::byte> memory(arena.data(), arena.data() + 2 * bytes), file(bytes);  // one after the other
  std::minstd_rand random(6);
  const auto up_to = [&](std::size_t most) { return random() % (most + 1); };
  for (int i = 0; i < 300; ++i) {
    const std::size_t unit = i % 4 == 0 ? 1 : kPage;  // through the page cache, or past it
    const std::size_t count = up_to(6 * kPage / unit) * unit;
    const std::size_t offset = up_to((bytes - count) / unit) * unit, place = up_to((2 * bytes - count) / unit) * unit;
    const std::size_t from = up_to(bytes - count), to = bytes + up_to(bytes - count);
    switch (random() % 3) {
      case 0:
        transfers.write(offset, {arena.data() + place, count});
        std::memcpy(file.data() + offset, memory.data() + place, count);
        break;
      case 1:
        transfers.read(offset, {arena.data() + place, count});
        std::memcpy(memory.data() + place, file.data() + offset, count);
        break;
      default:
        transfers.copy(arena.data() + from, arena.data() + to, count);
        std::memcpy(memory.data() + to, memory.data() + from, count);
    }
  }
  transfers.finish();
  EXPECT_EQ(std::memcmp(arena.data(), memory.data(), memory.size()), 0);
  transfers.read(0, {arena.data(), bytes});
  transfers.finish();
  EXPECT_EQ(std::memcmp(arena.data(), file.data(), bytes), 0);
}

class SwapTransfersTest : public testing::TestWithParam<QueueKind> {
 protected:
  SwapTransfersTest() : memory_(2 * kBytes, "test"), file_(folder_.path(), kBytes) {}

  void SetUp() override {
    std::string why;
    if (GetParam() == QueueKind::io_uring && make_io_uring_queue(1, why) == nullptr)
      GTEST_SKIP() << "no io_uring here: " << why;
  }
  TransferOptions options() const { return {.block_size = 2 * kPage, .queue_depth = 4, .queue = GetParam()}; }
  std::span<std::byte> source() { return {memory_.data(), kBytes}; }
  std::span<std::byte> target() { return {memory_.data() + kBytes, kBytes}; }

  static constexpr std::size_t kBytes = 64 * kPage;
  TransferFolder folder_;
  Arena memory_;
  SwapFile file_;
};

TEST_P(SwapTransfersTest, GiveBackWhatWasWrittenAlignedOrNot) {
  SwapTransfers transfers(file_, options());
  for (const auto& [offset, start, bytes] :
       {std::tuple<std::uint64_t, std::size_t, std::size_t>{2 * kPage, 0, 9 * kPage},
        {kPage + 7, 0, kPage},
        {kPage, 5, 7 * kPage + 3},
        {kBytes - 3, 1, 3},
        {12, 12, 0},
        {0, 0, kBytes}}) {
    fill(source(), static_cast<unsigned>(offset + 1));
    const auto sent = source().subspan(start, bytes), got = target().subspan(start, bytes);
    transfers.write(offset, sent);
    transfers.read(offset, got);
    transfers.finish();
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), got.begin())) << offset << " " << bytes;
  }
}

TEST_P(SwapTransfersTest, EveryWayToSubmitGivesTheSameBytes) {
  for (const bool single : {false, true}) {
    for (const bool overlaps : {false, true}) {
      TransferOptions changed = options();
      changed.single_submit = single;
      changed.overlap_events = overlaps;
      SwapTransfers transfers(file_, changed);
      fill(source(), single ? 3 : 4);
      transfers.write(0, source());
      transfers.read(0, target());
      transfers.finish();
      EXPECT_EQ(std::memcmp(source().data(), target().data(), kBytes), 0) << single << overlaps;
    }
  }
}

TEST_P(SwapTransfersTest, AnyMixtureComesOutAsIfOneFollowedTheOther) {
  SwapTransfers transfers(file_, options());
  expect_mixture_in_order(transfers, memory_, kBytes);
}

INSTANTIATE_TEST_SUITE_P(Queues, SwapTransfersTest, testing::Values(QueueKind::io_uring, QueueKind::threads),
                         [](const auto& kind) { return kind.param == QueueKind::threads ? "threads" : "io_uring"; });

/// A disk that answers as it is told, in the order that it likes; its bytes are the file's mapping.
class PlayedQueue : public BlockQueue {
 public:
  /// What a call gives, for the number of the call: bytes to move at most, or -errno.
  using Answer = std::function<std::int64_t(int call, const Block& block)>;
  PlayedQueue(const SwapFile& file, Answer answer, bool answers_last_first, std::vector<std::size_t>& batches)
      : file_(file), answer_(std::move(answer)), last_first_(answers_last_first), batches_(batches) {}

  void submit(std::span<const Block> blocks) override {
    batches_.push_back(blocks.size());
    blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
  }
  Completion wait() override {
    const Block block = last_first_ ? blocks_.back() : blocks_.front();
    last_first_ ? blocks_.pop_back() : blocks_.pop_front();
    const std::int64_t answer = answer_(calls_++, block);
    if (answer <= 0) return {block.tag, answer};
    const std::size_t bytes = std::min(block.bytes, static_cast<std::size_t>(answer));
    std::byte* const place = file_.mapped() + block.offset;
    std::memcpy(block.is_write ? place : block.memory, block.is_write ? block.memory : place, bytes);
    return {block.tag, static_cast<std::int64_t>(bytes)};
  }
  std::string_view name() const override { return "played"; }

 private:
  const SwapFile& file_;
  Answer answer_;
  bool last_first_;
  std::vector<std::size_t>& batches_;
  std::deque<Block> blocks_;
  int calls_ = 0;
};

class PlayedDisk : public testing::Test {
 protected:
  PlayedDisk() : memory_(2 * kBytes, "test"), file_(folder_.path(), kBytes) { fill(source(), 9); }

  SwapTransfers transfers(const PlayedQueue::Answer& answer, bool last_first = false, bool single_submit = false) {
    const TransferOptions options{.block_size = 2 * kPage, .queue_depth = 4, .single_submit = single_submit};
    return {file_, options, std::make_unique<PlayedQueue>(file_, answer, last_first, batches_)};
  }
  std::span<std::byte> source() { return {memory_.data(), kBytes}; }
  std::span<std::byte> target() { return {memory_.data() + kBytes, kBytes}; }
  static std::string message_of(const std::function<void()>& body) {
    try {
      body();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }

  static constexpr std::size_t kBytes = 24 * kPage;
  TransferFolder folder_;
  Arena memory_;
  SwapFile file_;
  std::vector<std::size_t> batches_;
};

TEST_F(PlayedDisk, ShortTransfersAreContinuedAndInterruptedOnesRepeated) {
  for (const bool last_first : {false, true}) {
    auto moved = transfers(
        [](int call, const Block& block) -> std::int64_t {
          if (call % 5 == 1) return -EINTR;
          if (call % 5 == 2) return -EAGAIN;
          return call % 5 == 3 ? 1000 : call % 5 == 4 ? 4096 : static_cast<std::int64_t>(block.bytes);
        },
        last_first);
    std::memset(target().data(), 0, kBytes);
    moved.write(0, source());
    moved.read(0, target());
    moved.finish();
    EXPECT_EQ(std::memcmp(source().data(), target().data(), kBytes), 0);
  }
}

TEST_F(PlayedDisk, WhatOverlapsWaitsForWhatIsUnderWay) {
  auto moved = transfers([](int, const Block& block) { return static_cast<std::int64_t>(block.bytes); }, true);
  expect_mixture_in_order(moved, memory_, kBytes);
}

TEST_F(PlayedDisk, AFullDiskNamesFolderBytesAndFree) {
  auto full = transfers([](int call, const Block& block) -> std::int64_t {
    return call == 3 ? -ENOSPC : static_cast<std::int64_t>(block.bytes);
  });
  const std::string text = message_of([&] {
    full.write(0, source());
    full.finish();
  });
  EXPECT_THAT(text, HasSubstr(folder_.path().string()));
  EXPECT_THAT(text, HasSubstr("8192 bytes at 24576 cannot be written: No space left on device"));
  EXPECT_THAT(text, HasSubstr("bytes are free"));
  full.abandon();
  EXPECT_TRUE(full.is_idle());
}

TEST_F(PlayedDisk, AFailedReadAndAnEndThatComesEarlyAreErrors) {
  auto broken = transfers([](int, const Block&) -> std::int64_t { return -EIO; });
  EXPECT_THAT(message_of([&] {
                broken.read(4096, target().subspan(0, 4096));
                broken.finish();
              }),
              HasSubstr("4096 bytes at 4096 cannot be read: Input/output error"));
  auto cut = transfers([](int, const Block&) -> std::int64_t { return 0; });
  EXPECT_THAT(message_of([&] {
                cut.read(4096, target().subspan(0, 4096));
                cut.finish();
              }),
              HasSubstr("the file ends before them"));
}

TEST_F(PlayedDisk, NumbersEndInOrderWhateverTheDiskDoes) {
  auto moved = transfers([](int, const Block& block) { return static_cast<std::int64_t>(block.bytes); }, true);
  moved.begin(1);
  moved.write(0, source().subspan(0, 2 * kPage));
  moved.begin(2);
  moved.write(2 * kPage, source().subspan(0, 2 * kPage));
  EXPECT_EQ(moved.first_under_way(), 1U);
  moved.advance();  // the second
  EXPECT_EQ(moved.first_under_way(), 1U);
  moved.advance();
  EXPECT_EQ(moved.first_under_way(), 3U);
}

TEST_F(PlayedDisk, CallsAreHandedOverTogetherUnlessEachIsToGoAlone) {
  const auto all = [](int, const Block& block) { return static_cast<std::int64_t>(block.bytes); };
  transfers(all).write(0, source().subspan(0, 6 * kPage));
  EXPECT_EQ(batches_, std::vector<std::size_t>{3});
  batches_.clear();
  transfers(all, false, true).write(0, source().subspan(0, 6 * kPage));
  EXPECT_EQ(batches_, (std::vector<std::size_t>{1, 1, 1}));
}

}  // namespace
}  // namespace heddle
