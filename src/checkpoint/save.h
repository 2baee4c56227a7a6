#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/checkpoint.h"
#include "comm/communicator.h"
#include "formats/json.h"

/// Saving, finding and removing the checkpoints of an output folder. All ranks of a run call these functions; they
/// share the file system. Where something fails on one rank, all ranks throw the same Error.
namespace heddle {

/// What one rank saves of a tensor: its elements [begin, end) in the flattened tensor of `shape`. The memory is the
/// caller's. The pieces of all ranks make up each tensor, each element once.
struct CheckpointPiece {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0, end = 0;
  std::span<const std::byte> bytes;
};

/// A file that lies in the folder as it is: a copy of `source`, or `text` where that is empty.
struct KeptFile {
  std::string name;
  std::filesystem::path source;
  std::string text;
};

/// Writes OUTPUT_DIR/checkpoint-STEP, each rank its pieces, and returns its path. It is written aside as
/// .checkpoint-STEP.partial, synced, read back and renamed: what has the final name is whole. The free space is checked
/// first. What does not change of `files` and lies in the newest checkpoint already is linked, not
/// written again, if it is large. `state` and `files` are rank 0's. After a failure nothing is left.
std::filesystem::path save_checkpoint(const std::filesystem::path& output_dir, std::int64_t step,
                                      std::span<const CheckpointPiece> pieces, const Json& state,
                                      std::span<const KeptFile> files, Communicator& communicator);

/// Steps of the checkpoint folders in output_dir, newest first.
std::vector<std::int64_t> checkpoint_steps(const std::filesystem::path& output_dir);

/// The newest checkpoint that is whole, the same on all ranks, every byte verified (the ranks divide that among them).
/// Damaged ones are named in a warning and passed over. None where there is no checkpoint; Error where there are some
/// and none of them is whole.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& output_dir, Communicator& communicator);

/// Opens and verifies this one, on all ranks.
Checkpoint open_checkpoint(const std::filesystem::path& folder, Communicator& communicator);

/// Removes the oldest beyond `keep` (0 keeps all) but for that of step `best` (0: none) and those whose step is a
/// multiple of `keep_every` (0: none), and what interrupted saves left. Called after a save was committed.
void remove_old_checkpoints(const std::filesystem::path& output_dir, std::int64_t keep, std::int64_t keep_every,
                            std::int64_t best, Communicator& communicator);

/// Proves before the first step that saving will work: the folder can be written to, renamed and synced in, and `bytes`
/// (the largest save of all ranks together) are free. Throws Error naming the folder.
void rehearse_save(const std::filesystem::path& output_dir, std::uint64_t bytes, Communicator& communicator);

}  // namespace heddle
