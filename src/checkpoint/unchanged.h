#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/chunk_writer.h"
#include "checkpoint/manifest.h"

namespace heddle {

struct CheckpointPiece;

/// What a save need not write, since the checkpoint before holds it byte for byte: whole pieces, in state files that
/// the same rank wrote or linked. Each save has such a file under a name of its own, a link to it, so that either
/// checkpoint may be deleted.
struct Unchanged {
  struct File {
    std::string name;     ///< in the checkpoint before
    std::string link;     ///< in the new one: with the step that wrote it
    CheckedFile content;  ///< under that name
  };
  std::vector<File> files;
  std::vector<int> file_of;  ///< by piece: index in `files`, or -1
};

/// Compares pieces with the checkpoint `previous` in `folder`: some pages of each first, so that what has changed costs
/// next to nothing. Files of which less than half is still alive are not used, so that dead bytes stay bounded, nor are
/// small ones. What cannot be read counts as changed. `buffer`: memory to compare in; its own where that is small.
Unchanged find_unchanged(const std::filesystem::path& folder, const Manifest& previous, int rank,
                         std::span<const CheckpointPiece> pieces, const ReadMemory& read, std::span<std::byte> buffer);

/// "state-RRRRR.safetensors", which rank R writes.
std::string state_file_name(int rank);

/// Smaller files are written again each time: a fault of the disk then costs one checkpoint, not all that share the
/// file.
inline constexpr std::uint64_t kLeastLinked = std::uint64_t{1} << 20;

}  // namespace heddle
