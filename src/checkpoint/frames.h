#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "formats/file_reader.h"

/// Compressed files. Of every kFrameBytes of the content the bytes are shuffled (the first bytes of its words of four,
/// then all the second ones, and so on; what is left behind the last word stays at the end) and compressed as a frame
/// of Zstandard (RFC 8878) with its checksum. The frames lie one behind the other. Signs and exponents of floats repeat
/// and their mantissas do not: shuffled, four-byte types as well as two-byte ones have them apart.
namespace heddle {

/// Its four planes are blocks of Zstandard, each with a code of its own.
inline constexpr std::size_t kFrameBytes = std::size_t{512} << 10;
/// A frame that cannot be compressed takes at most so much.
inline constexpr std::size_t kMostFrameBytes = kFrameBytes + kFrameBytes / 256;

/// Where the frames of a compressed file lie.
struct FrameIndex {
  std::uint64_t content_bytes = 0;
  std::vector<std::uint32_t> stored_bytes;  ///< of each frame
};

/// Compresses frame by frame.
class FrameEncoder {
 public:
  static constexpr std::size_t kBufferBytes = 2 * kMostFrameBytes;

  /// `buffers` are the caller's; its own where they are smaller than kBufferBytes.
  explicit FrameEncoder(std::span<std::byte> buffers = {});
  ~FrameEncoder();
  FrameEncoder(const FrameEncoder&) = delete;
  FrameEncoder& operator=(const FrameEncoder&) = delete;

  /// Memory for the content of the next frame.
  std::span<std::byte> content() const { return content_.first(kFrameBytes); }
  /// Compresses the first `bytes` of content(), which is overwritten: the result lies there until it is filled anew.
  std::span<const std::byte> encode(std::size_t bytes);

 private:
  struct Context;
  std::vector<std::byte> own_;
  std::span<std::byte> content_, shuffled_;
  std::unique_ptr<Context> context_;
};

/// Decompresses frames of any number of files, and keeps the last one: what lies side by side is decompressed once. May
/// be used by many threads, one at a time.
class FrameDecoder {
 public:
  FrameDecoder();
  ~FrameDecoder();
  FrameDecoder(const FrameDecoder&) = delete;
  FrameDecoder& operator=(const FrameDecoder&) = delete;

  struct Frame {
    std::uint64_t begin = 0;  ///< in the file
    std::size_t stored_bytes = 0, content_bytes = 0;
  };
  /// A number for a file that is opened.
  int add_file();
  /// Copies of a frame's content what begins at `offset`. Throws Error naming the file and the frame where it is
  /// damaged.
  void read(int file_number, const FileReader& file, const Frame& frame, std::size_t offset,
            std::span<std::byte> target);

 private:
  struct Context;
  void decode(const FileReader& file, const Frame& frame);

  std::mutex mutex_;
  int files_ = 0;
  int file_ = -1;  // of the frame that content_ has
  std::uint64_t begin_ = 0;
  std::vector<std::byte> content_, shuffled_;
  std::unique_ptr<Context> context_;
};

/// A compressed file, read as if it were not. Reading takes the frames that the bytes lie in, and no others.
class CompressedFile {
 public:
  CompressedFile(const std::filesystem::path& path, const FrameIndex& index, std::shared_ptr<FrameDecoder> decoder);

  const std::string& path() const { return file_.path(); }
  std::uint64_t size() const { return size_; }
  void read(std::uint64_t offset, std::span<std::byte> target) const;

 private:
  FileReader file_;
  std::uint64_t size_;
  std::vector<std::uint64_t> begins_ = {0};  // of the frames, and the end
  std::shared_ptr<FrameDecoder> decoder_;
  int number_;
};

}  // namespace heddle
