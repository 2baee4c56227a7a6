#include "train/weight_rules.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "models/model.h"
#include "quantize/four_bit.h"

namespace heddle {
namespace {

std::map<std::string, DType, std::less<>> quantized_types(const WeightFiles* files) {
  std::map<std::string, DType, std::less<>> types;
  if (files == nullptr) return types;
  for (const StoredTensor* tensor : files->tensors()) {
    if (is_quantized(tensor->dtype)) types.emplace(tensor->name, tensor->dtype);
  }
  return types;
}

ModuleList modules_of(const ModelConfig& model) {
  ModuleList modules;
  emit_model(modules, model);
  return modules;
}

/// What a key of `lora` says, as an error shows it.
std::string value_of(const LoraConfig& config, const std::string& key) {
  if (key == "lora.r") return fmt::format("{}", config.r);
  if (key == "lora.lora_alpha") return fmt::format("{}", config.lora_alpha);
  if (key == "lora.lora_dropout") return fmt::format("{}", config.lora_dropout);
  if (key == "lora.use_rslora") return fmt::format("{}", config.use_rslora);
  if (key == "lora.use_dora") return fmt::format("{}", config.use_dora);
  if (key == "lora.ensure_weight_tying") return fmt::format("{}", config.ensure_weight_tying);
  if (key == "lora.bias") return config.bias;
  if (key == "lora.trainable_token_indices") return Json(config.trainable_token_indices).dump();
  auto names = key == "lora.target_modules" ? config.target_modules : config.modules_to_save;
  std::sort(names.begin(), names.end());
  if (key == "lora.target_modules" && !config.target_pattern.empty()) return config.target_pattern;
  return fmt::format("[{}]", fmt::join(names, ", "));
}

/// The adapter to start from says everything; what the run file says too must be the same.
LoraConfig adapter_config(const RunConfig& run) {
  LoraConfig config = read_adapter_config(run.adapter_name_or_path);
  for (const auto& key : run.lora_keys) {
    const std::string asked = value_of(run.lora, key), found = value_of(config, key);
    if (asked != found) {
      fail("{} is {}; {} says {}", key, asked,
           (std::filesystem::path(run.adapter_name_or_path) / "adapter_config.json").string(), found);
    }
  }
  return config;
}

/// The adapter that a run trains.
std::shared_ptr<const LoraModules> adapter_of(const RunConfig& run, const ModelConfig& model,
                                              const ModuleList& modules) {
  const bool is_fresh = run.adapter_name_or_path.empty();
  LoraConfig config = is_fresh ? run.lora : adapter_config(run);
  if (!run.model_name_or_path.empty())
    config.base_model_name_or_path = std::filesystem::absolute(run.model_name_or_path).lexically_normal().string();
  config.fan_in_fan_out = modules.is_transposed;
  const std::string where =
      is_fresh ? "lora" : (std::filesystem::path(run.adapter_name_or_path) / "adapter_config.json").string();
  return std::make_shared<LoraModules>(std::move(config), model.model_type, modules, where);
}

/// The types of what an adapter's base keeps quantized: its files' own, or four bits.
std::map<std::string, DType, std::less<>> types_of_base(const RunConfig& run, const ModuleList& modules,
                                                        const WeightFiles* files) {
  auto types = quantized_types(files);
  if (!run.load_in_4bit) return types;
  const bool is_four_bit_base =
      std::any_of(types.begin(), types.end(), [](const auto& type) { return is_four_bit(type.second); });
  if (is_four_bit_base) {
    note("load_in_4bit: the base is in four bits already, and stays as it is");
    return types;
  }
  if (!types.empty()) {
    fail("load_in_4bit is true, but the base is quantized already: {} is {}", types.begin()->first,
         safetensors_name(types.begin()->second));
  }
  const DType type = four_bit_type(run.bnb_4bit_quant_type, run.bnb_4bit_use_double_quant);
  for (const auto& module : modules.linear) types.emplace(module + ".weight", type);
  return types;
}

/// The weights of a model, with an adapter's beside them, by all names that they have in files.
std::vector<NamedWeight> named_weights(const ModelConfig& model, const LoraModules* adapter) {
  ModuleList modules;
  if (adapter == nullptr) {
    emit_model(modules, model);
  } else {
    LoraEmitter with_adapter(modules, *adapter, false);
    emit_model(with_adapter, model);
  }
  std::vector<NamedWeight> named;
  for (const auto& weight : modules.weights) {
    NamedWeight& made = named.emplace_back(NamedWeight{weight, {weight}});
    if (weight == modules.head && weight != kHeadWeight) made.names.emplace_back(kHeadWeight);
    if (adapter == nullptr) continue;
    made.is_trained = adapter->trains(weight);
    if (made.is_trained && !is_adapter_weight(weight)) made.names.push_back(adapter->saved_name(weight));
  }
  return named;
}

}  // namespace

bool is_adapter_folder(const std::filesystem::path& folder) {
  return std::filesystem::is_regular_file(folder / "adapter_config.json");
}

std::filesystem::path base_of_adapter(const std::filesystem::path& adapter) {
  const std::string named = read_adapter_config(adapter).base_model_name_or_path;
  const std::filesystem::path beside = std::filesystem::absolute(adapter).lexically_normal().parent_path() / named;
  if (named.empty()) {
    fail("{}: base_model_name_or_path is missing", (adapter / "adapter_config.json").string());
  }
  for (const auto& path : {std::filesystem::path(named), beside}) {
    if (std::filesystem::exists(path)) return path;
  }
  fail("{}: base_model_name_or_path is {}; there is no such model, nor {}", (adapter / "adapter_config.json").string(),
       named, beside.string());
}

WeightTreatment WeightRules::operator()(const std::string& weight) const {
  const bool is_candidate = adapter_ == nullptr ? has_training_ : adapter_->trains(weight);
  if (is_candidate && groups_.trains(weight)) return groups_.treatment(weight);
  const auto found = storage_.find(weight);
  return {false, found == storage_.end() ? std::nullopt : std::optional(found->second)};
}

WeightRules training_rules(const RunConfig& run, const ModelConfig& model, const WeightFiles* files) {
  WeightRules rules;
  rules.adapter_folder_ = run.adapter_name_or_path;
  const bool is_frozen = !run.freeze.empty() || !run.train_only.empty();
  const bool has_adapter = run.has_lora || !run.adapter_name_or_path.empty();
  if (has_adapter) {
    const ModuleList modules = modules_of(model);
    rules.adapter_ = adapter_of(run, model, modules);
    rules.storage_ = types_of_base(run, modules, files);
  } else if (run.load_in_4bit) {
    fail("load_in_4bit is true without lora; expected an adapter: weights in four bits are not trained");
  } else if (is_frozen) {
    rules.storage_ = quantized_types(files);
  }
  if (is_frozen || !run.param_groups.empty()) rules.groups_ = WeightGroups(run, named_weights(model, rules.adapter()));
  return rules;
}

WeightRules inference_rules(const ModelConfig& model, const WeightFiles* files,
                            const std::filesystem::path& adapter_folder) {
  WeightRules rules;
  rules.has_training_ = false;
  rules.storage_ = quantized_types(files);
  if (adapter_folder.empty()) return rules;
  rules.adapter_folder_ = adapter_folder;
  const ModuleList modules = modules_of(model);
  rules.adapter_ = std::make_shared<LoraModules>(read_adapter_config(adapter_folder), model.model_type, modules,
                                                 (adapter_folder / "adapter_config.json").string());
  return rules;
}

}  // namespace heddle
