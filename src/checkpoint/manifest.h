#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/checked_file.h"
#include "formats/json.h"

namespace heddle {

/// A logical tensor, and where its elements lie.
struct SavedTensor {
  struct Piece {
    std::string file;
    std::int64_t begin = 0, end = 0;  // elements of the flattened tensor
    std::int64_t at = 0;              // where they begin in the file's tensor of that name
  };
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::vector<Piece> pieces;  // in the order of their elements

  std::int64_t elements() const;
};

/// What manifest.json says, or what one rank adds to it.
struct Manifest {
  std::int64_t step = 0;
  Json state;
  std::map<std::string, CheckedFile> files;
  std::map<std::string, SavedTensor> tensors;

  /// Adds the files and pieces of another rank. Throws Error where these say something else of a tensor.
  void add(const Manifest& other);
  /// Sorts the pieces; throws Error unless they make up each tensor, each element once, from files of this manifest.
  /// `where` names the checkpoint.
  void require_complete(const std::string& where);
};

/// The text of manifest.json. Its first line has the checksum of all that follows.
std::string to_text(const Manifest& manifest);
/// Throws Error naming the path for a manifest that is damaged or incomplete.
Manifest read_manifest(const std::filesystem::path& path);
/// The same from text; `where` is the path.
Manifest parse_manifest(const std::string& text, const std::string& where);

}  // namespace heddle
