#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "formats/file_reader.h"

namespace heddle {

/// A tensor in a PyTorch file: a view of a storage, in elements.
struct TorchTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape, strides;
  std::int64_t offset = 0;
  std::string storage;

  std::int64_t elements() const;
  bool is_contiguous() const;
};

/// A dictionary of tensors that torch.save wrote (.bin, .pt), as zip archive or in the older format. It is read as
/// data: nothing that its pickle names is called, and all that it says of sizes is checked against the file before a
/// tensor is read. A dictionary under "state_dict", "model" or "module" stands for the whole.
class TorchFile {
 public:
  /// Throws Error naming the file and what is wrong with it.
  explicit TorchFile(const std::filesystem::path& path);

  const std::vector<TorchTensor>& tensors() const { return tensors_; }
  /// Calls use(bytes) for the tensor's elements in their order, piece by piece.
  void read(const TorchTensor& tensor, const std::function<void(std::span<const std::byte>)>& use) const;

 private:
  friend class TorchReader;
  struct Storage {
    DType dtype = DType::f32;
    std::int64_t elements = 0;
    std::uint64_t begin = 0;  // in the file
  };
  FileReader file_;
  std::vector<TorchTensor> tensors_;
  std::map<std::string, Storage> storages_;
};

}  // namespace heddle
