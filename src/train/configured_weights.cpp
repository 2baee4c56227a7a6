#include "train/configured_weights.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "formats/files.h"
#include "formats/json_reader.h"
#include "models/model.h"
#include "models/module_list.h"
#include "quantize/four_bit.h"

namespace heddle {
namespace {

DType type_of(const JsonReader& quantization) {
  constexpr std::string_view kType = "bnb_4bit_quant_type";
  constexpr std::array<std::string_view, 2> kTypes = {"nf4", "fp4"};
  const std::string type = quantization.text_or(kType, "fp4");  // BitsAndBytesConfig's default
  if (std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end()) quantization.refuse_choice(kType, kTypes);
  return four_bit_type(type, quantization.boolean_or("bnb_4bit_use_double_quant", false));
}

/// Whether transformers leaves a module as it is for one of the names, which may be beginnings or ends of it.
bool is_skipped(const std::string& module, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const bool is_inside = module.starts_with(name) && (module.size() == name.size() || module[name.size()] == '.');
    return is_inside || module.ends_with(name);
  });
}

}  // namespace

ConfiguredWeights::ConfiguredWeights(const ModelSource& model) {
  constexpr std::string_view kSkip = "llm_int8_skip_modules";
  const std::string path = model.config_path.string();
  const Json root = parse_json(read_text_file(model.config_path), path, 200, NonFinite::as_text);
  const JsonReader quantization = JsonReader(root, path).object("quantization_config");
  const DType type = type_of(quantization);
  ModuleList modules;
  emit_model(modules, model.config);
  std::vector<std::string> quantized = modules.linear, skipped = {std::string(kHeadModule)};
  if (modules.head == kHeadWeight) quantized.emplace_back(kHeadModule);
  if (quantization.has(kSkip)) skipped = quantization.texts(kSkip);
  for (const auto& module : quantized) {
    if (is_skipped(module, skipped)) continue;
    const std::string name = module + ".weight";
    tensors_.emplace(name, StoredTensor{.name = name, .dtype = type, .shape = {}, .file = path});
  }
}

std::vector<const StoredTensor*> ConfiguredWeights::tensors() const {
  std::vector<const StoredTensor*> all;
  for (const auto& [name, tensor] : tensors_) all.push_back(&tensor);
  return all;
}

const StoredTensor* ConfiguredWeights::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

void ConfiguredWeights::read(const StoredTensor& tensor, std::uint64_t, std::span<std::byte>) const {
  fail("{}: holds no weights; {} cannot be read", tensor.file, tensor.name);
}

bool holds_weights(const ModelSource& model) {
  if (!model.has_weights || model.is_gguf || is_checkpoint(model.folder)) return model.has_weights;
  std::error_code error;
  return std::filesystem::exists(model.folder / "model.safetensors", error) ||
         std::filesystem::exists(model.folder / "model.safetensors.index.json", error);
}

}  // namespace heddle
