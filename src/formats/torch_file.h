#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "formats/torch_pickle.h"

namespace heddle {

/// A dictionary of tensors that torch.save wrote (.bin, .pt). One under "state_dict", "model" or "module" stands for
/// the whole.
class TorchFile {
 public:
  /// Throws Error naming the file and what is wrong with it, also where it holds anything but tensors.
  explicit TorchFile(const std::filesystem::path& path);

  const std::vector<TorchTensor>& tensors() const { return tensors_; }
  /// As those of TorchPickle.
  void read(const TorchTensor& tensor, const std::function<void(std::span<const std::byte>)>& use) const {
    file_.read(tensor, use);
  }
  void read_contiguous(const TorchTensor& tensor, std::int64_t begin, std::span<std::byte> target) const {
    file_.read_contiguous(tensor, begin, target);
  }
  /// Compares the checksums of all tensors, where the file has any.
  void verify() const { file_.verify(tensors_); }

 private:
  TorchPickle file_;
  std::vector<TorchTensor> tensors_;
};

}  // namespace heddle
