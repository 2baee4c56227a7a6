// Transfers with the nvme tier: GB/s of writing and reading a whole swap file, in pieces as the optimizer moves them.
//   bench_transfers FOLDER [block bytes] [queue depth] [MiB of the file] [seconds per figure] [io_uring|threads]
// bench/transfers.py runs it in turn with fio.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"
#include "tiers/arena.h"
#include "tiers/swap_transfers.h"

namespace {

using namespace heddle;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kPiece = std::size_t{16} << 20;  // of one state, in f32, as the optimizer program cuts it

double gigabytes_per_second(SwapTransfers& transfers, const SwapFile& file, const Arena& memory, bool is_write,
                            double seconds) {
  std::size_t moved = 0, place = 0;
  const auto start = Clock::now();
  double took = 0;
  do {
    for (std::size_t offset = 0; offset < file.bytes(); offset += kPiece) {
      const std::span piece(memory.data() + place, kPiece);
      is_write ? transfers.write(offset, piece) : transfers.read(offset, piece);
      place = (place + kPiece) % memory.bytes();
    }
    moved += file.bytes();
    took = std::chrono::duration<double>(Clock::now() - start).count();
  } while (took < seconds);
  transfers.finish();
  took = std::chrono::duration<double>(Clock::now() - start).count();
  return static_cast<double>(moved) / took * 1e-9;
}

void measure(int count, char** arguments) {
  const auto number = [&](int index, double otherwise) {
    return count > index ? std::atof(arguments[index]) : otherwise;
  };
  TransferOptions options;
  options.block_size = static_cast<std::size_t>(number(2, static_cast<double>(options.block_size)));
  options.queue_depth = static_cast<int>(number(3, options.queue_depth));
  if (count > 6) options.queue = arguments[6] == std::string_view("threads") ? QueueKind::threads : QueueKind::io_uring;
  const std::size_t bytes = (static_cast<std::size_t>(number(4, 1024)) << 20) / kPiece * kPiece;
  const SwapFile file(arguments[1], bytes);
  const Arena memory(4 * kPiece, "bench");
  std::memset(memory.data(), 1, memory.bytes());
  SwapTransfers transfers(file, options);
  gigabytes_per_second(transfers, file, memory, true, 0);  // the first write of a block costs the file system more
  for (const bool is_write : {true, false}) {
    fmt::print("{} {} {:.3f}\n", transfers.queue_name(), is_write ? "write" : "read",
               gigabytes_per_second(transfers, file, memory, is_write, number(5, 3)));
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 2) {
    fmt::print(stderr, "usage: bench_transfers FOLDER [block bytes] [depth] [MiB] [seconds] [io_uring|threads]\n");
    return 2;
  }
  try {
    measure(count, arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_transfers: {}\n", error.what());
    return 1;
  }
  return 0;
}
