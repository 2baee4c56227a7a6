#include "checkpoint/chunk_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/snapshot.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

class ChunkFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "heddle-chunks-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ / "file";
    for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<std::byte>(i * 2654435761u >> 13);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<std::span<const std::byte>> parts(std::initializer_list<std::size_t> sizes) const {
    std::vector<std::span<const std::byte>> found;
    std::size_t at = 0;
    for (const auto size : sizes) {
      found.push_back(std::span(memory_).subspan(at, size));
      at += size;
    }
    return found;
  }

  std::vector<std::byte> content() const {
    std::ifstream file(path_, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  std::vector<std::byte> first(std::size_t size) const {
    return {memory_.begin(), memory_.begin() + static_cast<std::ptrdiff_t>(size)};
  }

  fs::path folder_, path_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(2 * kChunkBytes + 100001);
};

TEST_F(ChunkFile, HoldsThePartsOneAfterAnother) {
  const std::size_t all = memory_.size();
  for (const auto& sizes : {std::initializer_list<std::size_t>{0},
                            {1},
                            {17, 0, 4079, 5},
                            {3, kChunkBytes - 3},
                            {all},
                            {1000003, kChunkBytes + 7, 1, all - kChunkBytes - 1000011}}) {
    const auto pieces = parts(sizes);
    std::size_t bytes = 0;
    for (const auto size : sizes) bytes += size;
    ChunkWriter writer;
    const CheckedFile written = writer.write(path_, pieces);
    EXPECT_EQ(written.name, "file");
    EXPECT_TRUE(written.has_same_content(check_parts("file", pieces))) << bytes;
    EXPECT_TRUE(content() == first(bytes)) << bytes;
    writer.verify(path_, written);
    verify_file(path_, written);
  }
}

TEST_F(ChunkFile, GivenBuffersMayBeginAnywhere) {
  std::vector<std::byte> buffers(ChunkWriter::kBufferBytes);
  for (const std::size_t size : {std::size_t{100}, std::size_t{kChunkBytes} + 5000, buffers.size() - 3}) {
    ChunkWriter writer(std::span<std::byte>(buffers).subspan(3, size));
    writer.verify(path_, writer.write(path_, parts({memory_.size()})));
    EXPECT_TRUE(content() == memory_) << size;
  }
}

TEST_F(ChunkFile, WhatIsReadMayChange) {
  const std::vector<std::byte> before = memory_;
  std::uint64_t last = 0;
  ChunkWriter().write(path_, parts({memory_.size()}), [&](std::uint64_t position) {
    EXPECT_GT(position, last);
    std::fill(memory_.begin() + static_cast<std::ptrdiff_t>(last),
              memory_.begin() + static_cast<std::ptrdiff_t>(position), std::byte{0});
    last = position;
  });
  EXPECT_EQ(last, memory_.size());
  EXPECT_TRUE(content() == before);
}

TEST_F(ChunkFile, IsReadTheWayThatIsGiven) {
  ChunkWriter writer({}, [](std::span<const std::byte> from, std::span<std::byte> to) {
    std::transform(from.begin(), from.end(), to.begin(), [](std::byte b) { return ~b; });
  });
  writer.write(path_, parts({7, 1000}));
  for (auto& b : memory_) b = ~b;
  EXPECT_TRUE(content() == first(1007));
}

TEST_F(ChunkFile, AnErrorOnTheWayComesOut) {
  const auto stops = [](std::uint64_t position) {
    if (position > kChunkBytes) fail("stopped");
  };
  EXPECT_THAT([&] { ChunkWriter().write(path_, parts({memory_.size()}), stops); },
              ThrowsMessage<Error>(HasSubstr("stopped")));
  EXPECT_THAT([&] { ChunkWriter().write(folder_ / "none" / "file", parts({5})); },
              ThrowsMessage<Error>(HasSubstr("none/file")));
}

TEST_F(ChunkFile, DamageIsLocated) {
  ChunkWriter writer;
  const CheckedFile written = writer.write(path_, parts({memory_.size()}));
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(kChunkBytes) + 12345);
    file.put(static_cast<char>(~memory_[kChunkBytes + 12345]));
  }
  EXPECT_THAT([&] { writer.verify(path_, written); },
              ThrowsMessage<Error>(HasSubstr("file: is damaged between bytes 4194304 and 8388608")));
  fs::resize_file(path_, 2 * kChunkBytes + 5);
  EXPECT_THAT([&] { writer.verify(path_, written); }, ThrowsMessage<Error>(HasSubstr("has 8388613 bytes")));
}

TEST(Snapshot, IsAllReadWhileNoSaveIsUnderWay) {
  Snapshot snapshot;
  EXPECT_TRUE(snapshot.has_reached(UINT64_MAX));
  snapshot.begin();
  EXPECT_FALSE(snapshot.has_reached(1));
  snapshot.reach(10);
  EXPECT_TRUE(snapshot.has_reached(10));
  EXPECT_FALSE(snapshot.has_reached(11));
  snapshot.end();
  snapshot.wait_for(UINT64_MAX);
  EXPECT_TRUE(snapshot.has_reached(UINT64_MAX));
}

}  // namespace
}  // namespace heddle
