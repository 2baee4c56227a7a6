#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "formats/safetensors.h"

namespace heddle {

/// The weights of a checkpoint as those of a model: the fp32 values that training goes on from, by the model's names.
class CheckpointWeights final : public WeightFiles {
 public:
  explicit CheckpointWeights(Checkpoint checkpoint);
  std::vector<const StoredTensor*> tensors() const override;
  const StoredTensor* find(const std::string& name) const override;
  /// Throws Error for a part of an element.
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const override;
  const std::map<std::string, std::string>& weight_map() const override { return weight_map_; }

 private:
  Checkpoint checkpoint_;
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> weight_map_;
};

}  // namespace heddle
