#include "checkpoint/frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <zstd.h>

#include <array>
#include <fstream>

#include "base/error.h"
#include "checkpoint/chunk_writer.h"
#include "checkpoint/snapshot.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

class Frames : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "heddle-frames-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ / "file";
    std::uint64_t random = 1;
    for (auto& byte : memory_) {
      random = random * 6364136223846793005u + 1442695040888963407u;
      byte = static_cast<std::byte>(random >> 56);
    }
  }
  void TearDown() override { fs::remove_all(folder_); }

  CheckedFile write(std::size_t bytes, std::span<std::byte> buffers = {}) {
    const std::array<std::span<const std::byte>, 2> parts = {std::span(memory_).first(bytes / 3),
                                                             std::span(memory_).subspan(bytes / 3, bytes - bytes / 3)};
    return ChunkWriter(buffers).write_compressed(path_, parts);
  }

  fs::path folder_, path_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(2 * kChunkBytes + 100001);
  std::shared_ptr<FrameDecoder> decoder_ = std::make_shared<FrameDecoder>();
};

TEST_F(Frames, AreReadFromAnywhere) {
  std::vector<std::byte> buffers(ChunkWriter::kCompressingBytes);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, kFrameBytes, kFrameBytes + 3, memory_.size()}) {
    const CheckedFile written = write(bytes, bytes % 2 == 0 ? std::span<std::byte>() : std::span(buffers));
    verify_file(path_, written);
    EXPECT_EQ(written.frames->stored_bytes.size(), (bytes + kFrameBytes - 1) / kFrameBytes);
    const CompressedFile file(path_, *written.frames, decoder_);
    EXPECT_EQ(file.size(), bytes);
    const std::size_t half = bytes / 2;
    for (const auto& [begin, end] :
         {std::pair{std::size_t{0}, bytes}, {half, half + (bytes - half) / 3}, {bytes, bytes}}) {
      std::vector<std::byte> found(end - begin);
      file.read(begin, found);
      EXPECT_TRUE(std::equal(found.begin(), found.end(), memory_.begin() + static_cast<std::ptrdiff_t>(begin)))
          << bytes << ": " << begin << " to " << end;
    }
  }
}

// With what docs/checkpoints.md says, and no code of ours.
TEST_F(Frames, AreThoseOfZstandardWithTheBytesShuffled) {
  const std::size_t bytes = kFrameBytes + 7;
  const CheckedFile written = write(bytes);
  std::ifstream stream(path_, std::ios::binary);
  const std::string stored{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  std::string planes(bytes, ' ');
  std::size_t at = 0, from = 0;
  for (const auto size : written.frames->stored_bytes) {
    at += ZSTD_decompress(planes.data() + at, planes.size() - at, stored.data() + from, size);
    from += size;
  }
  ASSERT_EQ(at, bytes);
  EXPECT_EQ(from, stored.size());
  const auto byte = [&](std::size_t i) { return static_cast<std::byte>(planes[i]); };
  for (const std::size_t i : {std::size_t{0}, std::size_t{5}, kFrameBytes - 1})
    EXPECT_EQ(byte(i % 4 * (kFrameBytes / 4) + i / 4), memory_[i]) << i;
  for (const std::size_t i : {0, 1, 2, 3}) EXPECT_EQ(byte(kFrameBytes + i), memory_[kFrameBytes + i]);  // one word
  for (const std::size_t i : {4, 5, 6}) EXPECT_EQ(byte(kFrameBytes + i), memory_[kFrameBytes + i]);     // behind it
}

TEST_F(Frames, WhatIsReadMayChange) {
  const std::vector<std::byte> before = memory_;
  std::uint64_t last = 0;
  const std::span<const std::byte> part = memory_;
  const CheckedFile written = ChunkWriter().write_compressed(path_, std::span(&part, 1), [&](std::uint64_t position) {
    EXPECT_GT(position, last);
    std::fill(memory_.begin() + static_cast<std::ptrdiff_t>(last),
              memory_.begin() + static_cast<std::ptrdiff_t>(position), std::byte{0});
    last = position;
  });
  EXPECT_EQ(last, memory_.size());
  std::vector<std::byte> found(memory_.size());
  CompressedFile(path_, *written.frames, decoder_).read(0, found);
  EXPECT_TRUE(found == before);
}

TEST_F(Frames, OneThatIsDamagedIsNamed) {
  const CheckedFile written = write(memory_.size());
  const std::uint64_t second = written.frames->stored_bytes[0];
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(second) + 1000);
    file.put('x');
    file.put('y');
  }
  EXPECT_THAT([&] { verify_file(path_, written); },
              ThrowsMessage<Error>(HasSubstr("file: is damaged between bytes 0 and")));
  const CompressedFile file(path_, *written.frames, decoder_);
  std::array<std::byte, 10> found{};
  file.read(kFrameBytes - 10, found);
  EXPECT_TRUE(std::equal(found.begin(), found.end(), memory_.begin() + kFrameBytes - 10));
  EXPECT_THAT([&] { file.read(kFrameBytes, found); },
              ThrowsMessage<Error>(HasSubstr(fmt::format("file: is damaged: its frame between bytes {} and", second))));
}

TEST_F(Frames, TheirIndexIsOfTheWholeFile) {
  const CheckedFile written = write(memory_.size());
  const Json json = to_json(written);
  EXPECT_EQ(checked_file_from(json, "file", "manifest").frames->stored_bytes, written.frames->stored_bytes);
  for (const char* change : {R"([{"op": "remove", "path": "/zstd/frames/0"}])",
                             R"([{"op": "replace", "path": "/zstd/frames/0", "value": 5}])",
                             R"([{"op": "replace", "path": "/zstd/frames/0", "value": 90000000}])",
                             R"([{"op": "replace", "path": "/zstd/bytes", "value": 5}])"}) {
    EXPECT_THAT([&] { checked_file_from(json.patch(Json::parse(change)), "file", "manifest"); },
                ThrowsMessage<Error>(HasSubstr("frames")))
        << change;
  }
}

}  // namespace
}  // namespace heddle
