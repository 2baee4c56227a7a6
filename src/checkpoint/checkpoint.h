#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "formats/json.h"
#include "formats/safetensors.h"

/// A checkpoint is a folder checkpoint-STEP:
///   manifest.json        format version, step, training state, and for each logical tensor its type, global shape and
///   the
///                        pieces that make it up: {file, begin, end} in elements of the flattened tensor, XXH3 of the
///                        bytes
///   state-RRRRR.safetensors  the pieces that rank R wrote
///   config.json, ...     the files of the model, so that the folder names its model
/// Tensors are logical (weights/NAME in fp32, exp_avg/NAME, exp_avg_sq/NAME), so that any layout can read them.
/// It is written aside as .checkpoint-STEP.partial, synced and renamed: what has the final name is whole.
namespace heddle {

/// A tensor to save; the memory is the caller's.
struct CheckpointTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Writes OUTPUT_DIR/checkpoint-STEP and returns its path. Checks the free space first. `files` are copied in.
std::filesystem::path save_checkpoint(const std::filesystem::path& output_dir, std::int64_t step,
                                      std::span<const CheckpointTensor> tensors, const Json& state,
                                      std::span<const std::filesystem::path> files);

/// A checkpoint opened for reading: the manifest is checked against the files; checksums as tensors are read.
class Checkpoint {
 public:
  /// Throws Error naming the file and what is wrong with it.
  explicit Checkpoint(std::filesystem::path folder);
  const std::filesystem::path& folder() const { return folder_; }
  std::int64_t step() const { return step_; }
  const Json& state() const { return state_; }
  /// Compares every checksum.
  void verify() const;
  /// Copies the tensor; type and bytes must be those saved.
  void read(const std::string& name, DType dtype, std::span<std::byte> target) const;

 private:
  struct Piece {
    std::size_t file;
    std::uint64_t begin, end;  // elements
    std::string checksum;
  };
  struct Entry {
    DType dtype;
    std::vector<std::int64_t> shape;
    std::vector<Piece> pieces;
  };
  std::span<const std::byte> checked_bytes(const std::string& name, const Piece& piece) const;

  std::filesystem::path folder_;
  std::int64_t step_ = 0;
  Json state_;
  std::map<std::string, Entry> entries_;
  std::vector<SafetensorsFile> files_;
};

/// Steps of the checkpoint folders in output_dir, newest first.
std::vector<std::int64_t> checkpoint_steps(const std::filesystem::path& output_dir);

/// The newest checkpoint that is whole; damaged ones are named in a warning and passed over.
std::optional<Checkpoint> newest_checkpoint(const std::filesystem::path& output_dir);

/// Removes the oldest beyond `keep` (0 keeps all), and what interrupted saves left.
void remove_old_checkpoints(const std::filesystem::path& output_dir, std::int64_t keep);

}  // namespace heddle
