#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/chunk_writer.h"
#include "checkpoint/manifest.h"

namespace heddle {

struct CheckpointPiece;

/// What a save need not write, since the checkpoint before holds it byte for byte, in state files that the same rank
/// wrote or linked. Each save has such a file under a name of its own, a link to it, so that either checkpoint may be
/// deleted.
struct Unchanged {
  struct File {
    std::string name;     ///< in the checkpoint before
    std::string link;     ///< in the new one: with the step that wrote it
    CheckedFile content;  ///< under that name
  };
  /// Elements [begin, end) of a tensor.
  struct Range {
    std::int64_t begin = 0, end = 0;
    bool is_same = false;
    int file = -1;        ///< index in `files` of the one to link; -1: they are to be written
    std::int64_t at = 0;  ///< where they begin in that file's tensor of the same name

    std::int64_t elements() const { return end - begin; }
  };
  std::vector<File> files;
  std::vector<std::vector<Range>> ranges;  ///< by piece: they make it up, in order

  /// This file cannot be linked: what is in it is to be written.
  void leave_out(std::size_t file);
};

/// Compares pieces with the checkpoint `previous` in `folder`, in units of kUnitBytes; of units that lie together some
/// pages first, so that what has changed costs next to nothing. Files of which less than half is still alive are not
/// linked, so that dead bytes stay bounded, nor are small ones, nor more than kMostLinked: what they hold is the same,
/// and is to be written. What cannot be read counts as changed. `buffer`: memory to compare in; its own where that is
/// small.
Unchanged find_unchanged(const std::filesystem::path& folder, const Manifest& previous, int rank,
                         std::span<const CheckpointPiece> pieces, const ReadMemory& read, std::span<std::byte> buffer);

/// "state-RRRRR.safetensors", which rank R writes; compressed "state-RRRRR.safetensors.shuffled.zst".
std::string state_file_name(int rank, bool compresses = false);
/// "state-RRRRR-kept.safetensors", with what stayed the same for one save and is written once more: apart from what
/// changes, so that the saves to come link it.
std::string kept_file_name(int rank, bool compresses = false);

/// Of a piece, compared and written or linked as one.
inline constexpr std::size_t kUnitBytes = std::size_t{256} << 10;
/// Smaller files are written again each time: a fault of the disk then costs one checkpoint, not all that share the
/// file.
inline constexpr std::uint64_t kLeastLinked = std::uint64_t{1} << 20;
/// By one rank; those with the most that is alive.
inline constexpr std::size_t kMostLinked = 64;

}  // namespace heddle
