#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "train/run_setup.h"

namespace heddle {

/// The quantized weights that a config.json promises (bitsandbytes' quantization_config), by name and type, for a plan:
/// their bytes are nowhere.
class ConfiguredWeights final : public WeightFiles {
 public:
  /// A model whose `is_bitsandbytes` is set. Throws Error naming key and value of a type that is not known.
  explicit ConfiguredWeights(const ModelSource& model);

  std::vector<const StoredTensor*> tensors() const override;
  const StoredTensor* find(const std::string& name) const override;
  /// Throws Error.
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const override;
  const std::map<std::string, std::string>& weight_map() const override { return weight_map_; }

 private:
  std::map<std::string, StoredTensor> tensors_;
  std::map<std::string, std::string> weight_map_;
};

/// Whether a folder, checkpoint or file that `model` names holds weights, and not a config.json alone.
bool holds_weights(const ModelSource& model);

}  // namespace heddle
