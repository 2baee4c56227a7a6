#include "checkpoint/chunk_writer.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/chunked_parts.h"
#include "checkpoint/direct_file.h"

namespace heddle {
namespace {

constexpr std::size_t kPage = DirectFile::kPage;
/// Copied and hashed as one, so that it is still in the core's own cache when it is hashed.
constexpr std::size_t kHashedTogether = std::size_t{128} << 10;

std::span<std::byte> from_whole_page(std::span<std::byte> bytes) {
  const std::size_t skipped = (kPage - reinterpret_cast<std::uintptr_t>(bytes.data()) % kPage) % kPage;
  return bytes.size() > skipped ? bytes.subspan(skipped) : std::span<std::byte>();
}

}  // namespace

void copy_memory(std::span<const std::byte> from, std::span<std::byte> to) {
  std::memcpy(to.data(), from.data(), from.size());
}

ChunkWriter::ChunkWriter(std::span<std::byte> buffers, ReadMemory read)
    : buffers_(from_whole_page(buffers)), read_(std::move(read)) {}

/// Calls work(take, buffer) on each thread, with a buffer for one chunk. take(while_taken) calls while_taken(chunk) for
/// the next chunk, one thread at a time, and returns the chunk; -1 when that says that there is none, all of `bytes`
/// are taken, or a thread has failed. What is thrown comes out of here, the first of it.
template <typename Work>
void ChunkWriter::on_threads(std::uint64_t bytes, std::span<std::byte> buffers, Work&& work) {
  const std::int64_t chunks = chunk_count(bytes);
  auto threads = std::min<std::int64_t>(kThreads, chunks);
  std::size_t size = kChunkBytes;
  std::unique_ptr<std::byte, decltype(&std::free)> own(nullptr, std::free);
  if (buffers.size() >= kChunkBytes) {
    threads = std::min(threads, static_cast<std::int64_t>(buffers.size() / kChunkBytes));
  } else {
    size = std::min<std::uint64_t>(kChunkBytes, (bytes + kPage - 1) / kPage * kPage);
    const std::size_t all = std::max<std::size_t>(1, static_cast<std::size_t>(threads)) * size;
    own.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, std::max(all, kPage))));
    if (own == nullptr) fail("{} bytes of memory for the buffers of a save are not there", all);
    buffers = {own.get(), all};
  }
  std::mutex mutex;
  std::int64_t next = 0;
  std::exception_ptr failure;
  const auto take = [&](auto&& while_taken) -> std::int64_t {
    const std::lock_guard lock(mutex);
    return failure || next == chunks || !while_taken(next) ? -1 : next++;
  };
  const auto serve = [&](std::int64_t thread) {
    try {
      work(take, buffers.subspan(static_cast<std::size_t>(thread) * size, size));
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::int64_t thread = 1; thread < threads; ++thread) others.emplace_back([&serve, thread] { serve(thread); });
    if (threads > 0) serve(0);
  }
  if (failure) std::rethrow_exception(failure);
}

CheckedFile ChunkWriter::write(const std::filesystem::path& path, std::uint64_t most_bytes,
                               std::span<std::byte> buffers, const Fill& fill) {
  DirectFile file = DirectFile::create(path, most_bytes);
  CheckedFile written{path.filename().string(), 0, {}, {}};
  written.checksums.resize(static_cast<std::size_t>(chunk_count(most_bytes)));
  on_threads(most_bytes, buffers, [&](auto& take, std::span<std::byte> buffer) {
    std::span<std::byte> filled;
    // One copies at a time, so that what is read grows from front to back.
    const auto copy = [&](std::int64_t chunk) {
      Checksum checksum;
      filled = buffer.first(fill(buffer, checksum));
      written.checksums[static_cast<std::size_t>(chunk)] = checksum.value();
      written.bytes += filled.size();
      return !filled.empty();
    };
    for (std::int64_t chunk = take(copy); chunk >= 0; chunk = take(copy)) {
      file.write(static_cast<std::uint64_t>(chunk) * kChunkBytes, filled);
    }
  });
  written.checksums.resize(static_cast<std::size_t>(chunk_count(written.bytes)));
  file.finish(written.bytes);
  return written;
}

CheckedFile ChunkWriter::write(const std::filesystem::path& path, FileParts parts, const OnRead& on_read) {
  const ChunkedParts chunks(parts);
  std::uint64_t at = 0;
  return write(path, chunks.bytes(), buffers_, [&](std::span<std::byte> buffer, Checksum& checksum) {
    const std::size_t size = std::min<std::uint64_t>(buffer.size(), chunks.bytes() - at);
    read(chunks, at, buffer.first(size), [&](std::span<const std::byte> bytes) { checksum.add(bytes); });
    at += size;
    if (on_read && size > 0) on_read(at);
    return size;
  });
}

CheckedFile ChunkWriter::write_compressed(const std::filesystem::path& path, FileParts parts, const OnRead& on_read) {
  const ChunkedParts chunks(parts);
  const bool has_room = buffers_.size() >= kChunkBytes + FrameEncoder::kBufferBytes;
  FrameEncoder encoder(has_room ? buffers_.last(FrameEncoder::kBufferBytes) : std::span<std::byte>());
  FrameIndex index{chunks.bytes(), {}};
  std::uint64_t at = 0;
  std::span<const std::byte> frame;  // what of the last one is not in a chunk yet
  const auto buffers = has_room ? buffers_.first(buffers_.size() - FrameEncoder::kBufferBytes) : buffers_;
  const std::uint64_t frames = (chunks.bytes() + kFrameBytes - 1) / kFrameBytes;
  CheckedFile written =
      write(path, frames * kMostFrameBytes, buffers, [&](std::span<std::byte> buffer, Checksum& checksum) {
        std::size_t filled = 0;
        while (filled < buffer.size() && (!frame.empty() || at < chunks.bytes())) {
          if (frame.empty()) {
            const std::size_t size = std::min<std::uint64_t>(kFrameBytes, chunks.bytes() - at);
            read(chunks, at, encoder.content().first(size), [](std::span<const std::byte>) {});
            at += size;
            frame = encoder.encode(size);
            index.stored_bytes.push_back(static_cast<std::uint32_t>(frame.size()));
            if (on_read) on_read(at);
          }
          const std::size_t size = std::min(frame.size(), buffer.size() - filled);
          std::copy_n(frame.begin(), size, buffer.begin() + static_cast<std::ptrdiff_t>(filled));
          checksum.add(frame.first(size));
          frame = frame.subspan(size);
          filled += size;
        }
        return filled;
      });
  written.frames = std::move(index);
  return written;
}

/// Fills `target` with what the file has from `at` on, and calls use(bytes) for a bit after another of it.
template <typename Use>
void ChunkWriter::read(const ChunkedParts& parts, std::uint64_t at, std::span<std::byte> target, Use&& use) const {
  parts.visit(at, at + target.size(), [&](std::span<const std::byte> piece) {
    while (!piece.empty()) {
      const std::size_t size = std::min(piece.size(), kHashedTogether);
      read_(piece.first(size), target.first(size));
      use(target.first(size));
      piece = piece.subspan(size);
      target = target.subspan(size);
    }
  });
}

void ChunkWriter::verify(const std::filesystem::path& path, const CheckedFile& expected) {
  verify_size(path, expected);
  DirectFile file(path);
  on_threads(expected.bytes, buffers_, [&](auto& take, std::span<std::byte> buffer) {
    const auto nothing = [](std::int64_t) { return true; };
    for (std::int64_t chunk = take(nothing); chunk >= 0; chunk = take(nothing)) {
      const auto begin = static_cast<std::uint64_t>(chunk) * kChunkBytes;
      const auto bytes = buffer.first(std::min(kChunkBytes, expected.bytes - begin));
      file.read(begin, bytes);
      require_checksum(path, expected, chunk, checksum_of(bytes));
    }
  });
}

}  // namespace heddle
