#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "formats/safetensors.h"

namespace heddle {

/// The weights of a checkpoint as a model folder has them: the fp32 values that training goes on from.
class CheckpointWeights final : public WeightFiles {
 public:
  using Names = std::map<std::string, std::string>;
  /// By the model's names, but for those that have another in `names`; `file` is what an export would write.
  explicit CheckpointWeights(Checkpoint checkpoint, const Names& names = {},
                             const std::string& file = "model.safetensors");
  std::vector<const StoredTensor*> tensors() const override;
  const StoredTensor* find(const std::string& name) const override;
  /// Throws Error for a part of an element.
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const override;
  const std::map<std::string, std::string>& weight_map() const override { return weight_map_; }

 private:
  Checkpoint checkpoint_;
  struct Saved {
    StoredTensor tensor;
    std::string logical;  ///< its name in the checkpoint
  };
  std::map<std::string, Saved> tensors_;
  std::map<std::string, std::string> weight_map_;
};

}  // namespace heddle
