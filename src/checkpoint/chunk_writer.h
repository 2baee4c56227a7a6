#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "checkpoint/checked_file.h"

namespace heddle {

class ChunkedParts;

/// Copies what lies at `from` into `to`, of the same size. May be called from many threads at once.
using ReadMemory = std::function<void(std::span<const std::byte> from, std::span<std::byte> to)>;
/// Where it lies in plain memory.
void copy_memory(std::span<const std::byte> from, std::span<std::byte> to);

/// Writes files from memory, chunk by chunk: one thread copies and hashes a chunk while another's is on its way to the
/// disk. Memory besides the files' own: a buffer for each thread.
class ChunkWriter {
 public:
  /// More threads than keep the disk busy would take cores from who computes.
  static constexpr int kThreads = 2;
  /// Enough for its buffers wherever they begin.
  static constexpr std::size_t kBufferBytes = kThreads * kChunkBytes + 4096;

  /// The same where it compresses.
  static constexpr std::size_t kCompressingBytes = kBufferBytes + FrameEncoder::kBufferBytes;

  /// `buffers` are the caller's; where they have no room for a chunk, or for frames beside one, it takes its own for
  /// each file. `read`: how memory is read.
  explicit ChunkWriter(std::span<std::byte> buffers = {}, ReadMemory read = copy_memory);

  /// Called when everything before `position` in the file is read from memory; what it throws stops the writing.
  using OnRead = std::function<void(std::uint64_t position)>;
  /// Writes a file, syncs it, and hashes it.
  CheckedFile write(const std::filesystem::path& path, FileParts parts, const OnRead& on_read = {});
  /// The same compressed, frame by frame, one at a time.
  CheckedFile write_compressed(const std::filesystem::path& path, FileParts parts, const OnRead& on_read = {});
  /// Reads a file again; throws Error naming it and the bytes where it is not what `expected` says.
  void verify(const std::filesystem::path& path, const CheckedFile& expected);

 private:
  /// Puts the next bytes of a file into a buffer, adds them to the chunk's checksum, and returns how many they are:
  /// fewer than there is room for at the end alone.
  using Fill = std::function<std::size_t(std::span<std::byte> buffer, Checksum& checksum)>;
  template <typename Work>
  static void on_threads(std::uint64_t bytes, std::span<std::byte> buffers, Work&& work);
  static CheckedFile write(const std::filesystem::path& path, std::uint64_t most_bytes, std::span<std::byte> buffers,
                           const Fill& fill);
  template <typename Use>
  void read(const ChunkedParts& parts, std::uint64_t at, std::span<std::byte> target, Use&& use) const;

  std::span<std::byte> buffers_;
  ReadMemory read_;
};

}  // namespace heddle
