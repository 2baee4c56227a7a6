#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
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

  std::uint64_t bytes() const { return end - begin; }
};

/// A safetensors file, open for reading. Everything the header says is checked when the file is opened, before any
/// tensor is read: header length, JSON (duplicate keys), types, shapes that overflow, ranges that overlap, leave gaps
/// or leave the file. https://github.com/huggingface/safetensors#format
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  /// Copies bytes of the file from `offset` on into `target`.
  using ReadAt = std::function<void(std::uint64_t offset, std::span<std::byte> target)>;
  /// One of `size` bytes that do not lie in a file as they are; `path` names it in messages.
  SafetensorsFile(std::string path, std::uint64_t size, ReadAt read);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;

  std::span<const StoredTensor> tensors() const;  // in the order of their bytes
  const StoredTensor* find(std::string_view name) const;
  /// Copies the tensor's bytes from `offset` on into `target`. Throws Error if the file has shrunk below them since it
  /// was opened. May be called from many threads at once.
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const;
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The weights of a model, whatever kind of file holds them: tensors by Hugging Face's names, each as a row-major run
/// of bytes in its own type.
class WeightFiles {
 public:
  virtual ~WeightFiles() = default;
  virtual std::vector<const StoredTensor*> tensors() const = 0;  ///< file by file, each in the order of their bytes
  virtual const StoredTensor* find(const std::string& name) const = 0;
  /// Copies the tensor's bytes from `offset` on into `target`. May be called from many threads at once.
  virtual void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const = 0;
  /// {tensor: file name} when sharded, else empty: the layout that an export keeps.
  virtual const std::map<std::string, std::string>& weight_map() const = 0;
};

/// The weights of a Hugging Face folder: model.safetensors, or else shards with model.safetensors.index.json. Index and
/// shards are compared when they are opened: each tensor lies in the one shard that the index names.
class WeightFolder final : public WeightFiles {
 public:
  explicit WeightFolder(const std::filesystem::path& folder);
  std::vector<const StoredTensor*> tensors() const override;
  const StoredTensor* find(const std::string& name) const override;
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const override;
  const std::map<std::string, std::string>& weight_map() const override { return weight_map_; }

 private:
  void open_shards(const std::filesystem::path& index_path);
  const SafetensorsFile& file_with(const StoredTensor& tensor) const;

  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::size_t> file_of_;  // tensor -> index in files_
  std::map<std::string, std::string> weight_map_;
};

/// Writes a safetensors file tensor by tensor; the header is fixed at construction. The file appears under its final
/// name only when finish() has synced and renamed it; until then it lies beside it with ".partial" added. Errors name
/// the path and the bytes.
class SafetensorsWriter {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    std::vector<std::int64_t> shape;
  };
  /// The bytes lie in the order of the entries. A tensor must begin at a multiple of its element size: put those of
  /// larger elements first. `metadata` is {"format": "pt"} in files for transformers.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<Entry>& entries,
                    const std::map<std::string, std::string>& metadata);
  ~SafetensorsWriter();  // removes the unfinished file
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  /// The next bytes, in the order of the entries: any number of pieces, in total the sizes of all.
  void append(std::span<const std::byte> bytes);
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What such a file begins with, for those who write its data by themselves (several ranks at once): the length and
/// the header, checked as SafetensorsWriter's. The tensors' `data_bytes` lie behind it, in the order of the entries.
std::string safetensors_header(const std::string& path, const std::vector<SafetensorsWriter::Entry>& entries,
                               const std::map<std::string, std::string>& metadata, std::uint64_t& data_bytes);

}  // namespace heddle
