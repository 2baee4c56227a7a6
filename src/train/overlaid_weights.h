#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "formats/safetensors.h"

namespace heddle {

/// Weight files with some tensors of others, or some of their own under another name too.
class OverlaidWeights final : public WeightFiles {
 public:
  /// `others` may be null: then what is added is of `own`.
  explicit OverlaidWeights(std::unique_ptr<WeightFiles> own, std::unique_ptr<WeightFiles> others = nullptr);

  /// `tensor`, one of the others', under that name, in place of an own one of it.
  void add(const std::string& name, const StoredTensor& tensor);

  std::vector<const StoredTensor*> tensors() const override;
  const StoredTensor* find(const std::string& name) const override;
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const override;
  const std::map<std::string, std::string>& weight_map() const override { return own_->weight_map(); }

 private:
  std::unique_ptr<WeightFiles> own_, others_;
  std::map<std::string, std::pair<StoredTensor, const StoredTensor*>> added_;  // as it is seen, and as it is stored
};

}  // namespace heddle
