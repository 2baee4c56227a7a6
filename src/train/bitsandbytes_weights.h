#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "models/model_config.h"

namespace heddle {

/// The weights of a folder that bitsandbytes left in four bits: what it stores in several tensors (quantize/
/// bitsandbytes.h) is shown as one, in the type and with the bytes of quantize/four_bit.h. Other tensors are shown as
/// they are.
class BitsandbytesWeights final : public WeightFiles {
 public:
  /// Reads the states and tables of all tensors. Throws Error naming a tensor whose state cannot be had here, whose
  /// parts are missing or have another size than its shape says.
  explicit BitsandbytesWeights(std::unique_ptr<WeightFiles> files);

  std::vector<const StoredTensor*> tensors() const override;
  const StoredTensor* find(const std::string& name) const override;
  void read(const StoredTensor& tensor, std::uint64_t offset, std::span<std::byte> target) const override;
  const std::map<std::string, std::string>& weight_map() const override { return weight_map_; }

 private:
  struct Part {
    std::uint64_t begin;  ///< in the tensor as it is shown
    const StoredTensor* stored;
  };
  struct Packed {
    StoredTensor shown;
    std::vector<Part> parts;
    std::uint64_t mean_begin = 0;  ///< of the mean of its scales, which only the state holds
    std::vector<std::byte> mean;   ///< empty without double quantization
  };
  /// The tensor of that name; adds the names of its other parts to `hidden`.
  Packed pack(const std::string& name, const StoredTensor& state_text, std::set<std::string>& hidden) const;

  std::unique_ptr<WeightFiles> files_;
  std::map<std::string, Packed> packed_;
  std::map<std::string, std::string> weight_map_;
  std::vector<const StoredTensor*> shown_;
};

/// Of a folder whose config.json says `quant_method: bitsandbytes`. Throws Error for a model whose linear layers lie
/// transposed: bitsandbytes turns them.
std::unique_ptr<WeightFiles> open_bitsandbytes_folder(const std::filesystem::path& folder, const ModelConfig& model);

}  // namespace heddle
