#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/weights.h"

/// The weight files of a model folder, laid out before anything is written, so that each rank can write its part.
namespace heddle {

struct PlacedTensor {
  std::string parameter;
  std::int64_t elements = 0;
  DType dtype = DType::f32;
  std::uint64_t offset = 0;  ///< of its first byte in the file
};

struct FileLayout {
  std::filesystem::path path, aside;  ///< its name, and where it is written
  std::string header;
  std::uint64_t bytes = 0;
  std::vector<PlacedTensor> tensors;
};

struct FolderLayout {
  std::filesystem::path folder;
  std::vector<FileLayout> files;
  std::string index;  ///< of model.safetensors.index.json; empty where there is one file
};

/// model.safetensors, or the source's shards and their index; `dtype` overrides the source's types.
FolderLayout lay_out(const std::filesystem::path& folder, const WeightSource& source, std::optional<DType> dtype,
                     const std::function<std::vector<std::int64_t>(const std::string& parameter)>& shape_of);

/// Makes the files aside, of their full size, with their headers.
void create_files(const FolderLayout& layout);
/// Gives the files their names, once they are written and synced.
void commit_files(const FolderLayout& layout);
/// Removes what lies aside.
void give_up_files(const FolderLayout& layout);

}  // namespace heddle
