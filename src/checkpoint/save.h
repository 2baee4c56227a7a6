#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/chunk_writer.h"
#include "checkpoint/snapshot.h"
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

/// How a rank's memory is read while it is saved, and what becomes of it.
struct SavedMemory {
  std::span<std::byte> buffers = {};  ///< of ChunkWriter
  ReadMemory read = copy_memory;
  Snapshot* snapshot = nullptr;  ///< is told how far the pieces are read, and asked whether they are still wanted
  bool compresses = false;       ///< state files (FrameEncoder)
};

/// Writes OUTPUT_DIR/checkpoint-STEP, each rank its pieces. It is written aside as .checkpoint-STEP.partial, synced,
/// read back and renamed: what has the final name is whole. What does not change, and lies in the newest checkpoint
/// already, is linked and not written again: large `files`, and what is the same of pieces (find_unchanged). `state`
/// and `files` are rank 0's.
///
/// In three parts, so that the ranks may compute while their files are written. After a failure nothing is left.
class CheckpointSave {
 public:
  /// On all ranks: makes the folder; where all is to be written, its disk has room for it.
  CheckpointSave(std::filesystem::path output_dir, std::int64_t step, std::vector<CheckpointPiece> pieces, Json state,
                 std::vector<KeptFile> files, Communicator& communicator, SavedMemory memory = {});
  ~CheckpointSave();  // of one that was not committed: removes what was written; write() is over
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;

  /// Writes this rank's files, once. Calls no other rank and throws nothing: any thread may do it. Until the snapshot
  /// has reached them the pieces must not change.
  void write();
  /// On all ranks, after write(): gives the folder its name and returns it. Throws Error where a rank could not write.
  std::filesystem::path commit();

 private:
  std::filesystem::path output_dir_, aside_;
  std::int64_t step_;
  std::vector<CheckpointPiece> pieces_;
  Json state_;
  std::vector<KeptFile> files_;
  Communicator& communicator_;
  SavedMemory memory_;
  std::filesystem::path previous_;  // empty: none
  std::string written_;             // this rank's part of the manifest
  std::exception_ptr failure_;      // of write()
  bool is_committed_ = false;
};

/// All three at once; returns the folder.
std::filesystem::path save_checkpoint(const std::filesystem::path& output_dir, std::int64_t step,
                                      std::span<const CheckpointPiece> pieces, const Json& state,
                                      std::span<const KeptFile> files, Communicator& communicator);

/// Steps of the checkpoint folders in output_dir, newest first.
std::vector<std::int64_t> checkpoint_steps(const std::filesystem::path& output_dir);

/// The newest checkpoint that is whole, the same on all ranks, every byte verified (the ranks divide that among them).
/// Damaged ones are named in a warning and passed over. None where there is no checkpoint; Error where there are some
/// and none of them is whole.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& output_dir, Communicator& communicator);

/// The same of these steps, newest first, which are rank 0's.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& output_dir,
                                            std::span<const std::int64_t> steps, Communicator& communicator);

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
