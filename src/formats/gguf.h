#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_metadata.h"
#include "formats/safetensors.h"

namespace heddle {

/// A GGUF file (versions 2 and 3, little-endian), open for reading. All that its head says is checked when it is
/// opened, before any tensor is read: counts and lengths against the file's size, kinds, alignment, names and keys
/// given twice, types, shapes that overflow or end within a block, ranges that are unaligned, overlap or leave the
/// file. Names and shapes are the file's own, but shapes begin with the outermost dimension, as everywhere in Heddle.
/// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
class GgufFile {
 public:
  explicit GgufFile(const std::filesystem::path& path);
  ~GgufFile();
  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;

  const std::string& path() const;
  std::uint32_t version() const;
  std::uint64_t alignment() const;  ///< of tensors, in bytes
  const GgufMetadata& metadata() const;

  /// In the order of their bytes. Types that are not is_decodable() are among them: whoever opens a model refuses
  /// these.
  std::span<const StoredTensor> tensors() const;
  const StoredTensor* find(std::string_view name) const;
  /// Copies the tensor's bytes from `offset` on into `target`. Throws Error if the file has shrunk below them since it
  /// was opened. May be called from many threads at once.
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Writes a GGUF file (version 3), tensor by tensor; the head is fixed at construction. The file appears under its name
/// only when finish() has synced and renamed it (AsideFile).
/// Values are written in the widths that llama.cpp asks for: uint64 as UINT32 and int64 as INT32 where they fit (else
/// 64 bits), double as FLOAT32; arrays of them as INT32 and FLOAT32.
class GgufWriter {
 public:
  struct Entry {
    std::string name;
    DType dtype;
    std::vector<std::int64_t> shape;  ///< outermost first, as everywhere
  };
  /// The bytes lie in the order of the entries.
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata, const std::vector<Entry>& entries);
  ~GgufWriter();  // removes the unfinished file
  GgufWriter(const GgufWriter&) = delete;
  GgufWriter& operator=(const GgufWriter&) = delete;
  /// The next bytes, in the order of the entries: any number of pieces, none of them across the end of a tensor.
  void append(std::span<const std::byte> bytes);
  /// Where the file lies until then: whole once the last tensor is.
  const std::filesystem::path& unfinished_path() const;
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle
