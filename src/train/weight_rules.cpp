#include "train/weight_rules.h"

#include <algorithm>

#include "base/error.h"
#include "models/model.h"

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
  if (key == "lora.bias") return config.bias;
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
  if (adapter_ != nullptr && adapter_->trains(weight)) return {};
  const auto found = storage_.find(weight);
  if (found != storage_.end()) return {false, found->second};
  return {adapter_ == nullptr, std::nullopt};
}

WeightRules training_rules(const RunConfig& run, const ModelConfig& model, const WeightFiles* files) {
  WeightRules rules;
  rules.adapter_folder_ = run.adapter_name_or_path;
  if (!run.has_lora && run.adapter_name_or_path.empty()) {
    if (run.load_in_4bit)
      fail("load_in_4bit is true without lora; expected an adapter: weights in four bits are not trained");
    return rules;
  }
  const bool is_fresh = run.adapter_name_or_path.empty();
  LoraConfig config = is_fresh ? run.lora : adapter_config(run);
  if (!run.model_name_or_path.empty())
    config.base_model_name_or_path = std::filesystem::absolute(run.model_name_or_path).lexically_normal().string();
  const ModuleList modules = modules_of(model);
  config.fan_in_fan_out = modules.is_transposed;
  const std::string where =
      is_fresh ? "lora" : (std::filesystem::path(run.adapter_name_or_path) / "adapter_config.json").string();
  rules.adapter_ =
      std::make_shared<LoraModules>(std::move(config), model.model_type, modules.linear, modules.weights, where);
  rules.storage_ = quantized_types(files);
  if (run.load_in_4bit) {
    if (!rules.storage_.empty()) {
      fail("load_in_4bit is true, but the base is quantized already: {} is {}", rules.storage_.begin()->first,
           safetensors_name(rules.storage_.begin()->second));
    }
    for (const auto& module : modules.linear) {
      rules.storage_.emplace(module + ".weight", run.bnb_4bit_use_double_quant ? DType::nf4_double : DType::nf4);
    }
  }
  return rules;
}

WeightRules inference_rules(const ModelConfig& model, const WeightFiles* files,
                            const std::filesystem::path& adapter_folder) {
  WeightRules rules;
  rules.storage_ = quantized_types(files);
  if (adapter_folder.empty()) return rules;
  rules.adapter_folder_ = adapter_folder;
  const ModuleList modules = modules_of(model);
  rules.adapter_ = std::make_shared<LoraModules>(read_adapter_config(adapter_folder), model.model_type, modules.linear,
                                                 modules.weights, (adapter_folder / "adapter_config.json").string());
  return rules;
}

}  // namespace heddle
