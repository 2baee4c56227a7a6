#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/manifest.h"
#include "formats/json.h"
#include "formats/safetensors.h"

/// A checkpoint is a folder checkpoint-STEP:
///   manifest.json            its own checksum, format version, step, training state; of each logical tensor the type,
///                            the global shape and the pieces that make it up, {file, begin, end} in elements of the
///                            flattened tensor; of each file the size and the checksums of its chunks
///   state-RRRRR.safetensors  the pieces that rank R wrote
///   config.json, ...         the files of the model, so that the folder names its model
/// Tensors are logical (weights/NAME in fp32, exp_avg/NAME, exp_avg_sq/NAME), so that any layout can read them.
/// docs/checkpoints.md has the whole format.
namespace heddle {

/// Whether the folder says that it is one, whole or not.
bool is_checkpoint(const std::filesystem::path& folder);

/// A checkpoint opened for reading. Opening checks the manifest, and each file's size and header; verify() the rest.
class Checkpoint {
 public:
  /// Throws Error naming the file and what is wrong with it.
  explicit Checkpoint(std::filesystem::path folder);
  const std::filesystem::path& folder() const { return folder_; }
  std::int64_t step() const { return manifest_.step; }
  const Json& state() const { return manifest_.state; }
  const std::map<std::string, SavedTensor>& tensors() const { return manifest_.tensors; }
  const Manifest& manifest() const { return manifest_; }

  /// Reads the elements [begin, end) of the flattened tensor, and no other bytes, converted to `type` (floating types).
  /// Throws Error for a tensor that is absent or has fewer elements.
  void read(const std::string& name, std::int64_t begin, std::int64_t end, DType type,
            std::span<std::byte> target) const;

  /// Compares checksums: all of them, or the share of rank `part` of `parts`.
  void verify(int part = 0, int parts = 1) const;

 private:
  std::filesystem::path folder_;
  Manifest manifest_;
  std::map<std::string, SafetensorsFile> files_;  // those with pieces
};

}  // namespace heddle
