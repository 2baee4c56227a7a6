#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace heddle {

/// A tensor in a file: where its bytes lie.
struct StoredTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // offsets in the data section
  std::string file;                  // path, for messages
};

/// A safetensors file, memory-mapped and checked before anything is read: header length, JSON (duplicate keys), types,
/// shapes that overflow, ranges that overlap, leave gaps or leave the file.
/// https://github.com/huggingface/safetensors#format
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  std::span<const StoredTensor> tensors() const;  // in file order
  const StoredTensor* find(const std::string& name) const;
  /// Valid while the object lives. Throws Error if the file has shrunk since it was opened.
  std::span<const std::byte> bytes(const StoredTensor& tensor) const;
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The weights of a Hugging Face folder: model.safetensors, or shards with model.safetensors.index.json.
class WeightFolder {
 public:
  explicit WeightFolder(const std::filesystem::path& folder);
  std::vector<const StoredTensor*> tensors() const;
  const StoredTensor* find(const std::string& name) const;
  std::span<const std::byte> bytes(const StoredTensor& tensor) const;
  /// {tensor: file name} when sharded, else empty: the layout that an export keeps.
  const std::map<std::string, std::string>& weight_map() const { return weight_map_; }

 private:
  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;  // tensor -> index in files_
  std::map<std::string, std::string> weight_map_;
};

/// Writes a safetensors file tensor by tensor; the header is fixed at construction. The file appears under its final
/// name only when finish() has synced and renamed it.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    std::vector<std::int64_t> shape;
  };
  SafetensorsWriter(std::filesystem::path path, std::vector<Entry> entries,
                    std::map<std::string, std::string> metadata);
  ~SafetensorsWriter();  // removes the unfinished file
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  /// In the order of the entries; the sizes must be theirs. May be called several times for one entry, in pieces.
  void append(std::span<const std::byte> bytes);
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle
