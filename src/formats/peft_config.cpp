#include "formats/peft_config.h"

#include <array>
#include <string_view>

#include "base/error.h"
#include "formats/json_reader.h"

namespace heddle {
namespace {

constexpr std::string_view kFile = "adapter_config.json";

/// Keys of LoraConfig that change what is computed, with the values that mean "not used" besides null and false.
struct Unused {
  std::string_view key, value;  // the value as JSON; empty: null or false alone
};
constexpr std::array kUnused = {
    Unused{"megatron_config", ""},   Unused{"loftq_config", "{}"},    Unused{"eva_config", ""},
    Unused{"corda_config", ""},      Unused{"target_parameters", ""}, Unused{"layer_replication", ""},
    Unused{"lora_bias", ""},         Unused{"use_qalora", ""},        Unused{"alora_invocation_tokens", ""},
    Unused{"arrow_config", ""},      Unused{"use_bdlora", ""},        Unused{"lora_ga_config", ""},
    Unused{"monteclora_config", ""}, Unused{"kasa_config", ""},       Unused{"velora_config", ""},
};

/// A list of names, or a single text.
std::vector<std::string> names(const JsonReader& reader, std::string_view key) {
  const Json* found = reader.find(key);
  if (found == nullptr) return {};
  if (found->is_string()) return {found->get<std::string>()};
  return reader.texts(key);
}

std::vector<std::int64_t> indices(const JsonReader& reader, std::string_view key, const Json& list,
                                  std::string_view expected) {
  std::vector<std::int64_t> indices;
  if (!list.is_array()) reader.refuse(key, std::string(expected));
  for (const auto& index : list) {
    if (!index.is_number_integer() || index.get<std::int64_t>() < 0) reader.refuse(key, std::string(expected));
    indices.push_back(index.get<std::int64_t>());
  }
  return indices;
}

std::vector<std::int64_t> layers(const JsonReader& reader) {
  constexpr std::string_view kKey = "layers_to_transform";
  const Json* found = reader.find(kKey);
  if (found == nullptr) return {};
  return indices(reader, kKey, found->is_array() ? *found : Json::array({*found}), "indices of layers");
}

/// A list, of the embedding, or an object of lists by module.
std::map<std::string, std::vector<std::int64_t>> token_indices(const JsonReader& reader) {
  constexpr std::string_view kKey = "trainable_token_indices", kExpected = "a list of ids, or such lists by module";
  std::map<std::string, std::vector<std::int64_t>> tokens;
  const Json* found = reader.find(kKey);
  if (found == nullptr) return tokens;
  if (!found->is_object()) return {{"", indices(reader, kKey, *found, kExpected)}};
  for (const auto& [module, ids] : found->items()) tokens.emplace(module, indices(reader, kKey, ids, kExpected));
  return tokens;
}

template <typename Number>
std::map<std::string, Number> pattern(const JsonReader& reader, std::string_view key) {
  std::map<std::string, Number> values;
  if (!reader.has(key)) return values;
  const JsonReader object = reader.object(key);
  for (const auto& [name, value] : object.value().items()) {
    if constexpr (std::is_same_v<Number, std::int64_t>) {
      values.emplace(name, object.integer(name, 1, INT32_MAX));
    } else {
      values.emplace(name, object.number(name));
    }
  }
  return values;
}

void refuse_variants(const JsonReader& reader) {
  for (const auto& [key, value] : kUnused) {
    const Json* found = reader.find(key);
    if (found == nullptr || *found == false || (!value.empty() && found->dump() == value)) continue;
    reader.refuse(key, "null: this version has no such variant of LoRA");
  }
}

Json token_indices_document(const LoraConfig& config) {
  const auto& tokens = config.trainable_token_indices;
  if (tokens.empty()) return {};
  const auto of_embedding = tokens.find("");
  return of_embedding != tokens.end() ? Json(of_embedding->second) : Json(tokens);
}

Json list_or_null(const std::vector<std::string>& names) { return names.empty() ? Json() : Json(names); }

}  // namespace

LoraConfig read_adapter_config(const std::filesystem::path& folder) {
  const auto path = folder / kFile;
  LoraConfig config;
  config.document = read_json_file(path);
  const JsonReader reader(config.document, path.string());
  if (reader.text("peft_type") != "LORA") reader.refuse("peft_type", "LORA");
  if (reader.text_or("task_type", "CAUSAL_LM") != "CAUSAL_LM") reader.refuse("task_type", "CAUSAL_LM");
  refuse_variants(reader);
  config.r = reader.integer_or("r", 8, 1, INT32_MAX);
  config.lora_alpha = reader.number_or("lora_alpha", 8);
  config.lora_dropout = reader.number_up_to_or("lora_dropout", 0, 1);
  if (const Json* targets = reader.find("target_modules"); targets != nullptr && targets->is_string()) {
    config.target_pattern = targets->get<std::string>();
  } else {
    config.target_modules = names(reader, "target_modules");
  }
  config.exclude_modules = names(reader, "exclude_modules");
  config.modules_to_save = names(reader, "modules_to_save");
  config.layers_to_transform = layers(reader);
  config.layers_pattern = names(reader, "layers_pattern");
  config.rank_pattern = pattern<std::int64_t>(reader, "rank_pattern");
  config.alpha_pattern = pattern<double>(reader, "alpha_pattern");
  config.trainable_token_indices = token_indices(reader);
  config.use_rslora = reader.boolean_or("use_rslora", false);
  config.use_dora = reader.boolean_or("use_dora", false);
  config.ensure_weight_tying = reader.boolean_or("ensure_weight_tying", false);
  config.fan_in_fan_out = reader.boolean_or("fan_in_fan_out", false);
  config.bias = reader.text_or("bias", "none");
  constexpr std::array<std::string_view, 3> kBias = {"none", "all", "lora_only"};
  if (config.bias != kBias[0] && config.bias != kBias[1] && config.bias != kBias[2])
    reader.refuse_choice("bias", kBias);
  config.base_model_name_or_path = reader.text_or("base_model_name_or_path", "");
  return config;
}

std::string adapter_config_text(const LoraConfig& config) {
  Json document = config.document.is_object() ? config.document : Json::object();
  document["peft_type"] = "LORA";
  document["task_type"] = "CAUSAL_LM";
  document["base_model_name_or_path"] =
      config.base_model_name_or_path.empty() ? Json() : Json(config.base_model_name_or_path);
  document["inference_mode"] = true;
  document["r"] = config.r;
  // A whole number stays one: LoraConfig declares lora_alpha so.
  const auto whole = static_cast<std::int64_t>(config.lora_alpha);
  document["lora_alpha"] = static_cast<double>(whole) == config.lora_alpha ? Json(whole) : Json(config.lora_alpha);
  document["lora_dropout"] = config.lora_dropout;
  document["target_modules"] =
      config.target_pattern.empty() ? list_or_null(config.target_modules) : Json(config.target_pattern);
  document["modules_to_save"] = list_or_null(config.modules_to_save);
  document["trainable_token_indices"] = token_indices_document(config);
  document["bias"] = config.bias;
  document["use_rslora"] = config.use_rslora;
  document["use_dora"] = config.use_dora;
  if (config.ensure_weight_tying || document.contains("ensure_weight_tying"))
    document["ensure_weight_tying"] = config.ensure_weight_tying;
  document["layers_to_transform"] = config.layers_to_transform.empty() ? Json() : Json(config.layers_to_transform);
  document["fan_in_fan_out"] = config.fan_in_fan_out;
  if (!config.document.is_object()) document["init_lora_weights"] = true;
  return document.dump(2) + "\n";
}

}  // namespace heddle
