// How much of the disk's bandwidth the files of a checkpoint get:
//
//     bench_checkpoint_files FOLDER [MiB [rounds]]
//
// In each round, in turn: the same bytes by plain write(2) past the page cache in blocks of 4 MiB, as `dd oflag=direct
// conv=fsync` does; by ChunkWriter, which copies and hashes them too; and read again and compared. The best of the
// rounds of each, in MB/s, and the processor time of the last two together.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "checkpoint/chunk_writer.h"
#include "formats/open_file.h"
#include "tiers/arena.h"

namespace {

using namespace heddle;
namespace fs = std::filesystem;

/// Of all threads.
double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <typename Function>
double seconds(Function&& function) {
  const auto start = std::chrono::steady_clock::now();
  function();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void write_plainly(const fs::path& path, std::span<const std::byte> bytes) {
  const OpenFile file(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT);
  for (std::size_t at = 0; at < bytes.size(); at += kChunkBytes)
    file.write_at(at, bytes.subspan(at, std::min<std::size_t>(kChunkBytes, bytes.size() - at)));
  file.sync();
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    std::fprintf(stderr, "usage: bench_checkpoint_files FOLDER [MiB [rounds]]\n");
    return 2;
  }
  const fs::path folder = arguments[1];
  const std::size_t bytes = static_cast<std::size_t>(count > 2 ? std::atoi(arguments[2]) : 1536) << 20;
  const int rounds = count > 3 ? std::atoi(arguments[3]) : 5;
  const Arena arena(bytes, "what is written");
  for (std::size_t i = 0; i < bytes; i += sizeof(std::uint64_t))
    *reinterpret_cast<std::uint64_t*>(arena.data() + i) = (i + 1) * 0x9E3779B97F4A7C15u;
  const std::span<const std::byte> memory(arena.data(), bytes);
  const Arena buffers(ChunkWriter::kBufferBytes, "buffers");  // as in a run
  ChunkWriter writer(std::span(buffers.data(), buffers.bytes()));
  double plain = 1e9, written = 1e9, verified = 1e9, busy = 1e9;
  const fs::path path = folder / "bench-checkpoint.partial";
  for (int round = 0; round < rounds; ++round) {
    plain = std::min(plain, seconds([&] { write_plainly(path, memory); }));
    fs::remove(path);
    CheckedFile file;
    const double before = processor_seconds();
    written = std::min(written, seconds([&] { file = writer.write(path, std::span(&memory, 1)); }));
    verified = std::min(verified, seconds([&] { writer.verify(path, file); }));
    busy = std::min(busy, processor_seconds() - before);
    fs::remove(path);
  }
  const auto rate = [&](double time) { return static_cast<double>(bytes) / 1e6 / time; };
  std::printf(
      "{\"bytes\": %zu, \"plain\": %.0f, \"written\": %.0f, \"verified\": %.0f, \"share\": %.3f, "
      "\"processor_seconds\": %.3f}\n",
      bytes, rate(plain), rate(written), rate(verified), plain / written, busy);
  return 0;
}
