#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "formats/gguf_metadata.h"

namespace heddle::cli {

/// A tensor of a source, by the name that it has there.
struct ListedTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;
  std::string file;  ///< the one it lies in, of a source with several; for messages and listings

  std::int64_t elements() const;
};

/// Tensors to be looked at, whatever kind of file or folder holds them.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  /// "safetensors", "GGUF", "PyTorch", "checkpoint", "folder"
  virtual std::string format() const = 0;
  /// Elements [begin, begin + count) as they are stored: `begin` and, but at the end, `count` are multiples of kPiece.
  virtual void read(std::size_t tensor, std::int64_t begin, std::int64_t count, std::span<std::byte> target) const = 0;
  /// Of a GGUF file, else nullptr.
  virtual const GgufMetadata* metadata() const { return nullptr; }

  const std::string& path() const { return path_; }
  const std::vector<ListedTensor>& tensors() const { return tensors_; }
  /// Index of the tensor, or of none tensors().size(). Throws Error if several files of a folder hold it.
  std::size_t find(std::string_view name) const;

  /// Calls use(bytes, begin, count) for a tensor's elements, piece by piece.
  using Use = std::function<void(std::span<const std::byte> bytes, std::int64_t begin, std::int64_t count)>;
  void for_each_piece(std::size_t tensor, const Use& use) const;

  static constexpr std::int64_t kPiece = std::int64_t{1} << 18;  // elements: whole blocks and bytes of every type

 protected:
  explicit TensorSource(std::string path) : path_(std::move(path)) {}
  std::vector<ListedTensor> tensors_;

 private:
  std::string path_;
};

/// A safetensors, GGUF or PyTorch file, known by its ending or else by how it begins; a checkpoint, a model folder, or
/// a folder with any such files. Throws Error naming the path.
std::unique_ptr<TensorSource> open_tensor_source(const std::filesystem::path& path);

}  // namespace heddle::cli
