#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "config/run_config.h"
#include "formats/safetensors.h"
#include "models/lora.h"
#include "models/model_config.h"
#include "program/builder.h"
#include "train/weight_groups.h"

namespace heddle {

/// Whether the folder holds an adapter: a LoRA run's output, PEFT's, or a checkpoint of a LoRA run.
bool is_adapter_folder(const std::filesystem::path& folder);

/// The base model that an adapter's config names: as it says, or beside the adapter. Throws Error naming both where it
/// is not there.
std::filesystem::path base_of_adapter(const std::filesystem::path& adapter);

/// What becomes of each weight of a run: trained or frozen, with an adapter beside it, its type in memory.
class WeightRules {
 public:
  /// Everything is trained, in the run's type.
  WeightRules() = default;

  WeightTreatment operator()(const std::string& weight) const;
  /// The adapter's modules; null where the run trains the weights themselves.
  const LoraModules* adapter() const { return adapter_.get(); }
  /// The folder of the adapter to start from; empty: a fresh one.
  const std::filesystem::path& adapter_folder() const { return adapter_folder_; }

 private:
  friend WeightRules training_rules(const RunConfig& run, const ModelConfig& model, const WeightFiles* files);
  friend WeightRules inference_rules(const ModelConfig& model, const WeightFiles* files,
                                     const std::filesystem::path& adapter_folder);

  bool has_training_ = true;  // false: the model is only computed with
  std::shared_ptr<const LoraModules> adapter_;
  std::filesystem::path adapter_folder_;
  std::map<std::string, DType, std::less<>> storage_;  // of weights that stay quantized when they are not trained
  WeightGroups groups_;
};

/// Of a training run: `freeze`, `param_groups`, `lora`, `adapter_name_or_path`, `load_in_4bit`, and the types of a
/// quantized base's own `files` (null for a model from scratch). Throws Error for what contradicts itself or names
/// modules that the model does not have.
WeightRules training_rules(const RunConfig& run, const ModelConfig& model, const WeightFiles* files);
/// Of a model that is only computed with, perhaps with an adapter (empty: without): quantized weights stay so.
WeightRules inference_rules(const ModelConfig& model, const WeightFiles* files,
                            const std::filesystem::path& adapter_folder = {});

}  // namespace heddle
