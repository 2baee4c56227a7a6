#include "train/snapshot_guard.h"

#include <algorithm>
#include <chrono>

#include "train/executor.h"

namespace heddle {
namespace {

/// A piece, and its place among the bytes of all.
struct Placed {
  const std::byte *begin, *end;
  std::uint64_t position;
};

}  // namespace

SnapshotGuard::SnapshotGuard(const Executor& executor, std::size_t programs,
                             std::span<const std::span<const std::byte>> pieces, const Snapshot& snapshot)
    : snapshot_(snapshot) {
  std::vector<Placed> placed;
  std::uint64_t position = 0;
  for (const auto& piece : pieces) {
    if (!piece.empty()) placed.push_back({piece.data(), piece.data() + piece.size(), position});
    position += piece.size();
  }
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.begin < b.begin; });
  for (std::size_t program = 0; program < programs; ++program) {
    std::vector<std::uint64_t> needed;
    executor.visit_written(program, [&](std::size_t instruction, std::span<const std::byte> written) {
      needed.resize(std::max(needed.size(), instruction + 1));
      const std::byte *const begin = written.data(), *const end = begin + written.size();
      const auto first =
          std::partition_point(placed.begin(), placed.end(), [&](const Placed& piece) { return piece.end <= begin; });
      for (auto piece = first; piece != placed.end() && piece->begin < end; ++piece) {
        const auto last = piece->position + static_cast<std::uint64_t>(std::min(end, piece->end) - piece->begin);
        needed[instruction] = std::max(needed[instruction], last);
      }
    });
    needed_.push_back(std::move(needed));
  }
}

bool SnapshotGuard::wait_for(std::uint64_t position) {
  const auto start = std::chrono::steady_clock::now();
  snapshot_.wait_for(position);
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return true;
}

}  // namespace heddle
