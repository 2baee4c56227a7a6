#include "models/model_config.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "models/config_parts.h"

namespace heddle {
namespace {

/// What the model has that no supported family has, by the keys that tell of it: here, or in the text model of one that
/// reads images too.
std::string foreign_features(const JsonReader& reader, const std::string& model_type) {
  struct Feature {
    std::string_view name;
    std::array<std::string_view, 3> keys;
  };
  static constexpr std::array<Feature, 4> kFeatures = {{
      {"a mixture of experts", {"num_experts", "num_local_experts", "n_routed_experts"}},
      {"layers without attention", {"ssm_state_size", "linear_conv_kernel_dim", "linear_attn_config"}},
      {"latent attention", {"kv_lora_rank"}},
      {"images", {"vision_config", "img_processor"}},
  }};
  const Json* text_model = reader.find("text_config");
  const JsonReader inner =
      text_model != nullptr && text_model->is_object() ? JsonReader(*text_model, reader.file()) : reader;
  std::vector<std::string_view> found;
  if (model_type.find("moe") != std::string::npos) found.push_back(kFeatures[0].name);
  for (const Feature& feature : kFeatures) {
    const auto has = [&](std::string_view key) { return !key.empty() && (reader.has(key) || inner.has(key)); };
    const bool is_new = std::find(found.begin(), found.end(), feature.name) == found.end();
    if (is_new && std::any_of(feature.keys.begin(), feature.keys.end(), has)) found.push_back(feature.name);
  }
  return found.empty() ? "" : fmt::format(" ({})", fmt::join(found, ", "));
}

[[noreturn]] void refuse_model_type(const JsonReader& reader, const std::string& model_type) {
  const auto names = supported_model_types();
  const std::vector<std::string_view> known(names.begin(), names.end());
  reader.refuse_because("model_type", fmt::format("is {}, which is not supported{}; supported are {}{}",
                                                  json_excerpt(Json(model_type)), foreign_features(reader, model_type),
                                                  fmt::join(known, ", "), did_you_mean(model_type, known)));
}

/// Whether quantization_config is there, and of the one way to quantize that is supported in such folders.
bool has_four_bits(const JsonReader& reader) {
  constexpr std::string_view kKey = "quantization_config";
  if (!reader.has(kKey)) return false;
  const JsonReader quantization = reader.object(kKey);
  if (quantization.text_or("quant_method", "bitsandbytes") != "bitsandbytes") {
    reader.refuse(kKey, "quant_method bitsandbytes, or none: other quantized weights are not supported");
  }
  if (quantization.boolean_or("load_in_8bit", false)) {
    quantization.refuse("load_in_8bit", "false: weights in eight bits (LLM.int8) are not supported, only in four");
  }
  if (!quantization.boolean_or("load_in_4bit", false)) quantization.refuse("load_in_4bit", "true");
  return true;
}

/// Features that change what a model computes, whatever its family, and are not supported.
void refuse_features(const JsonReader& reader) {
  if (reader.has("compression_config")) {
    reader.refuse("compression_config", "none: a model with compressed weights is not supported");
  }
  for (const std::string_view key : {"use_bidirectional_attention", "add_cross_attention"}) {
    if (reader.boolean_or(key, false)) reader.refuse(key, "false: only causal self-attention is supported");
  }
  if (!reader.boolean_or("is_causal", true)) reader.refuse("is_causal", "true: only causal attention is supported");
}

std::string read_dtype(const JsonReader& reader) {
  constexpr std::array<std::string_view, 4> kTypes = {"float32", "bfloat16", "float16", "float64"};
  const std::string_view key = reader.has("dtype") ? "dtype" : "torch_dtype";
  const std::string name = reader.text_or(key, "float32");
  const std::string_view bare = std::string_view(name).starts_with("torch.") ? std::string_view(name).substr(6) : name;
  if (std::find(kTypes.begin(), kTypes.end(), bare) == kTypes.end()) reader.refuse_choice(key, kTypes);
  return std::string(bare);
}

}  // namespace

ModelConfig parse_model_config(const std::string& text, const std::string& name) {
  // Some published configs have Infinity under keys of other families: those are to be refused for what they are.
  const Json root = parse_json(text, name, 200, NonFinite::as_text);
  const JsonReader reader(root, name);
  ModelConfig config;
  config.model_type = reader.text("model_type");
  const auto known = supported_model_types();
  if (std::find(known.begin(), known.end(), config.model_type) == known.end()) {
    refuse_model_type(reader, config.model_type);
  }
  refuse_features(reader);
  config.is_bitsandbytes = has_four_bits(reader);
  config.torch_dtype = read_dtype(reader);
  config.initializer_range = reader.number_up_to_or("initializer_range", 0.02, 1.0);
  HEDDLE_CHECK(read_family(reader, config));
  return config;
}

}  // namespace heddle
