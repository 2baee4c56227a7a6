// One file in a folder, written and read by requests of one size, some of them under way at once.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>

#include "base/error.h"
#include "formats/open_file.h"
#include "planner/ceilings.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kRequestBytes = std::int64_t{4} << 20;
constexpr std::int64_t kFileBytes = std::int64_t{256} << 20;
constexpr std::size_t kAlignment = 4096;  // of memory, as O_DIRECT wants it
constexpr double kSecondsEach = 1.0;

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Block = std::unique_ptr<std::byte, Free>;

Block make_block() {
  Block block(static_cast<std::byte*>(std::aligned_alloc(kAlignment, static_cast<std::size_t>(kRequestBytes))));
  if (!block) throw std::bad_alloc();
  std::memset(block.get(), 0x5a, static_cast<std::size_t>(kRequestBytes));
  return block;
}

/// A new file that is gone when it is closed, whatever ends the program; past the page cache where the file system can.
OpenFile make_file(const std::filesystem::path& folder, bool& is_direct) {
  const auto path = folder / fmt::format(".heddle-bench-{}", getpid());
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC;
  const auto open = [&](int flags) {
    OpenFile file(path, flags);
    unlink(path.c_str());
    return file;
  };
  is_direct = true;
  try {
    OpenFile file = open(kFlags | O_DIRECT);
    const Block block = make_block();
    file.write_at(0, {block.get(), static_cast<std::size_t>(kRequestBytes)});  // some refuse only here
    return file;
  } catch (const Error&) {
    unlink(path.c_str());  // some refuse after they made it
    is_direct = false;
    return open(kFlags);
  }
}

/// Hands out requests to `depth` threads until the file's end, or until the time is over; returns the bytes done.
/// request(block, offset) is one of them.
template <typename Request>
std::int64_t run_requests(int depth, std::int64_t file_bytes, const Request& request) {
  std::atomic<std::int64_t> next{0}, done{0};
  const auto begin = Clock::now();
  std::exception_ptr failure;
  std::atomic<bool> has_failed{false};
  const auto serve = [&] {
    try {
      const Block block = make_block();
      while (std::chrono::duration<double>(Clock::now() - begin).count() < kSecondsEach && !has_failed) {
        const std::int64_t offset = next.fetch_add(kRequestBytes);
        if (offset >= file_bytes) break;
        request(std::span(block.get(), static_cast<std::size_t>(kRequestBytes)), static_cast<std::uint64_t>(offset));
        done += kRequestBytes;
      }
    } catch (...) {
      if (!has_failed.exchange(true)) failure = std::current_exception();
    }
  };
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(depth));
  for (int i = 0; i < depth; ++i) threads.emplace_back(serve);
  threads.clear();  // joins
  if (failure) std::rethrow_exception(failure);
  return done;
}

}  // namespace

DiskCeilings measure_disk(const std::filesystem::path& folder) {
  std::error_code error;
  const auto space = std::filesystem::space(folder, error);
  if (error) fail("{}: {}", folder.string(), error.message());
  DiskCeilings disk;
  disk.folder = std::filesystem::absolute(folder).lexically_normal().string();
  disk.file_bytes =
      std::min(kFileBytes, static_cast<std::int64_t>(space.available / 4) / kRequestBytes * kRequestBytes);
  if (disk.file_bytes < kRequestBytes) fail("{}: too little space is left to measure the disk", folder.string());
  const OpenFile file = make_file(folder, disk.is_direct);
  const auto rate = [](std::int64_t bytes, Clock::time_point begin) {
    return static_cast<double>(bytes) / std::chrono::duration<double>(Clock::now() - begin).count();
  };
  for (const int depth : {1, 4}) {
    DiskCeiling& entry = disk.by_depth.emplace_back(DiskCeiling{kRequestBytes, depth});
    auto begin = Clock::now();
    const std::int64_t written =
        run_requests(depth, disk.file_bytes,
                     [&](std::span<std::byte> block, std::uint64_t offset) { file.write_at(offset, block); });
    file.sync();
    entry.write = rate(written, begin);
    if (!disk.is_direct) posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
    begin = Clock::now();
    const std::int64_t read = run_requests(depth, written, [&](std::span<std::byte> block, std::uint64_t offset) {
      if (file.read_some(offset, block) != block.size()) fail("{}: is shorter than what was written", file.path());
    });
    entry.read = rate(read, begin);
  }
  return disk;
}

}  // namespace heddle
