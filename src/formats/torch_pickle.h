#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "formats/file_reader.h"
#include "formats/pickle.h"

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

/// Anything that torch.save wrote, as zip archive or in the older format: a pickle, and the storages of the tensors in
/// it. It is read as data: nothing that the pickle names is called, and all that it says of sizes is checked against
/// the file before a tensor is read.
class TorchPickle {
 public:
  /// The pickle may name tensors, their storages, ordered dictionaries, and what `allows` allows. Throws Error naming
  /// the file and what is wrong with it.
  TorchPickle(const std::filesystem::path& path, const std::function<bool(std::string_view)>& allows);

  const std::string& path() const { return file_.path(); }
  const Pickle& pickle() const { return pickle_; }

  /// The tensor, or parameter, that an object of the pickle is, under this name. Throws Error where it is none or does
  /// not fit its storage.
  TorchTensor tensor(const Pickle::Object& object, const std::string& name) const;
  /// Calls use(bytes) for the tensor's elements in their order, piece by piece.
  void read(const TorchTensor& tensor, const std::function<void(std::span<const std::byte>)>& use) const;
  /// The elements of a contiguous tensor from `begin` on, whole ones, as many as fit into `target`.
  void read_contiguous(const TorchTensor& tensor, std::int64_t begin, std::span<std::byte> target) const;
  /// Reads the storages of these tensors and compares their CRC-32; of the older format, which has none, nothing.
  void verify(const std::vector<TorchTensor>& tensors) const;

 private:
  friend class TorchReader;
  struct Storage {
    DType dtype = DType::f32;
    std::int64_t elements = 0;
    std::uint64_t begin = 0;  // in the file
    std::string entry;        // of the archive
  };
  FileReader file_;
  Pickle pickle_;
  std::map<std::string, Storage> storages_;
};

}  // namespace heddle
