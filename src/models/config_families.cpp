#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "models/config_parts.h"

// One function for each model_type: what its config.json says beyond the sizes, with the defaults of transformers'
// configuration_*.py (5.24).
namespace heddle {
namespace {

std::vector<bool> layers_from(std::int64_t first, std::int64_t num_layers) {
  std::vector<bool> chosen;
  for (std::int64_t layer = 0; layer < num_layers; ++layer) chosen.push_back(layer >= first);
  return chosen;
}

/// All but each `period`th.
std::vector<bool> layers_except_each(std::int64_t period, std::int64_t num_layers) {
  std::vector<bool> chosen;
  for (std::int64_t layer = 0; layer < num_layers; ++layer) chosen.push_back((layer + 1) % period != 0);
  return chosen;
}

void read_biases(const JsonReader& reader, ModelConfig& config) {
  config.attention_bias = reader.boolean_or("attention_bias", false);
  config.mlp_bias = reader.boolean_or("mlp_bias", false);
}

void read_llama(const JsonReader& reader, ModelConfig& config) {
  const ConfigDefaults defaults{.bos_token_id = 1, .eos_token_id = 2};
  read_decoder(reader, defaults, config);
  read_biases(reader, config);
  read_rope(reader, defaults.rope_theta, config);
  read_uniform_layers(reader, 0, config);
}

void read_mistral(const JsonReader& reader, ModelConfig& config) {
  const ConfigDefaults defaults{.num_kv_heads = 8, .max_positions = 131072, .bos_token_id = 1, .eos_token_id = 2};
  read_decoder(reader, defaults, config);
  read_rope(reader, defaults.rope_theta, config);
  read_uniform_layers(reader, read_sliding_window(reader, 4096), config);
}

/// Qwen 2 and 3: the window is off unless use_sliding_window, then on from layer max_window_layers.
void read_qwen_layers(const JsonReader& reader, ModelConfig& config) {
  const bool has_window = reader.boolean_or("use_sliding_window", false);
  const std::int64_t first = reader.integer_or("max_window_layers", 28, 0, kMaxPositions);
  const std::int64_t window = has_window ? read_sliding_window(reader, 4096) : 0;
  read_sliding_layers(reader, window, layers_from(window > 0 ? first : config.num_layers, config.num_layers), config);
}

void read_qwen2(const JsonReader& reader, ModelConfig& config) {
  config.qkv_bias = true;
  const ConfigDefaults defaults{.num_kv_heads = 32, .max_positions = 32768};
  read_decoder(reader, defaults, config);
  read_rope(reader, defaults.rope_theta, config);
  read_qwen_layers(reader, config);
}

void read_qwen3(const JsonReader& reader, ModelConfig& config) {
  const ConfigDefaults defaults{.num_kv_heads = 32, .head_dim = 128, .max_positions = 32768};
  read_decoder(reader, defaults, config);
  config.attention_bias = reader.boolean_or("attention_bias", false);
  read_rope(reader, defaults.rope_theta, config);
  read_qwen_layers(reader, config);
}

void read_gemma(const JsonReader& reader, ModelConfig& config) {
  const ConfigDefaults defaults{.num_kv_heads = 16,
                                .head_dim = 256,
                                .max_positions = 8192,
                                .tie_word_embeddings = true,
                                .bos_token_id = 2,
                                .eos_token_id = 1,
                                .pad_token_id = 0};
  read_decoder(reader, defaults, config);
  // The first releases say "gelu" where they mean the tanh approximation.
  config.activation = read_activation(reader, reader.has("hidden_activation") ? "hidden_activation" : "hidden_act",
                                      "gelu_pytorch_tanh");
  if (config.activation == Activation::gelu) config.activation = Activation::gelu_tanh;
  config.embedding_multiplier = std::sqrt(static_cast<double>(config.hidden_size));
  config.norm_offset = 1.0;
  config.attention_bias = reader.boolean_or("attention_bias", false);
  read_rope(reader, defaults.rope_theta, config);
  read_uniform_layers(reader, 0, config);
}

/// A cap that is on by default and off when null.
double read_softcap(const JsonReader& reader, std::string_view key, double absent) {
  return reader.is_null(key) ? 0.0 : reader.positive_number_or(key, absent);
}

/// What Gemma 2 and 3 share beyond the first.
void read_newer_gemma(const JsonReader& reader, const ConfigDefaults& defaults, double final_softcap,
                      ModelConfig& config) {
  read_decoder(reader, defaults, config);
  config.activation = read_activation(reader, "hidden_activation", "gelu_pytorch_tanh");
  config.embedding_multiplier = std::sqrt(static_cast<double>(config.hidden_size));
  config.norm_offset = 1.0;
  config.attention_bias = reader.boolean_or("attention_bias", false);
  config.attention_scale = 1.0 / std::sqrt(reader.positive_number_or("query_pre_attn_scalar", 256));
  config.final_softcap = read_softcap(reader, "final_logit_softcapping", final_softcap);
}

void read_gemma2(const JsonReader& reader, ModelConfig& config) {
  const ConfigDefaults defaults{.num_kv_heads = 4,
                                .head_dim = 256,
                                .max_positions = 8192,
                                .tie_word_embeddings = true,
                                .bos_token_id = 2,
                                .eos_token_id = 1,
                                .pad_token_id = 0};
  read_newer_gemma(reader, defaults, 30.0, config);
  config.attention_softcap = read_softcap(reader, "attn_logit_softcapping", 50.0);
  read_rope(reader, defaults.rope_theta, config);
  read_sliding_layers(reader, read_sliding_window(reader, 4096), layers_except_each(2, config.num_layers), config);
}

void read_gemma3_text(const JsonReader& reader, ModelConfig& config) {
  const ConfigDefaults defaults{.num_kv_heads = 4,
                                .head_dim = 256,
                                .max_positions = 131072,
                                .rope_theta = 1e6,
                                .tie_word_embeddings = true,
                                .bos_token_id = 2,
                                .eos_token_id = 1,
                                .pad_token_id = 0};
  read_newer_gemma(reader, defaults, 0.0, config);
  // Norms of q and k took the place of this cap; transformers reads the key and does not use it.
  if (reader.has("attn_logit_softcapping")) reader.refuse("attn_logit_softcapping", "null in a gemma3_text model");
  read_rope_by_layer_type(reader, defaults.rope_theta, 10000.0, config);
  const std::int64_t pattern = reader.integer_or("sliding_window_pattern", 6, 1, kMaxLayers);
  read_sliding_layers(reader, read_sliding_window(reader, 4096), layers_except_each(pattern, config.num_layers),
                      config);
}

void read_phi3(const JsonReader& reader, ModelConfig& config) {
  const ConfigDefaults defaults{
      .max_positions = 4096, .norm_epsilon = 1e-5, .bos_token_id = 1, .eos_token_id = 32000, .pad_token_id = 32000};
  read_decoder(reader, defaults, config);
  config.hidden_dropout = reader.number_up_to_or("resid_pdrop", 0.0, 1.0);
  config.embedding_dropout = reader.number_up_to_or("embd_pdrop", 0.0, 1.0);
  read_rope(reader, defaults.rope_theta, config);
  read_uniform_layers(reader, read_sliding_window(reader, 0), config);
}

void read_olmo2(const JsonReader& reader, ModelConfig& config) {
  const ConfigDefaults defaults{.norm_epsilon = 1e-5, .eos_token_id = 50279, .pad_token_id = 1};
  read_decoder(reader, defaults, config);
  config.attention_bias = reader.boolean_or("attention_bias", false);
  read_rope(reader, defaults.rope_theta, config);
  read_uniform_layers(reader, 0, config);
}

void read_granite(const JsonReader& reader, ModelConfig& config) {
  const ConfigDefaults defaults{.bos_token_id = 1, .eos_token_id = 2};
  read_decoder(reader, defaults, config);
  read_biases(reader, config);
  config.embedding_multiplier = reader.positive_number_or("embedding_multiplier", 1.0);
  config.residual_multiplier = reader.positive_number_or("residual_multiplier", 1.0);
  config.attention_scale = reader.positive_number_or("attention_multiplier", 1.0);
  config.logits_scaling = reader.positive_number_or("logits_scaling", 1.0);
  read_rope(reader, defaults.rope_theta, config);
  read_uniform_layers(reader, 0, config);
}

/// SmolLM 3: no_rope_layers has 1 for the layers with rope, in spite of its name.
std::vector<bool> read_rope_layers(const JsonReader& reader, std::int64_t num_layers) {
  const Json* list = reader.find("no_rope_layers");
  if (list == nullptr) {
    return layers_except_each(reader.integer_or("no_rope_layer_interval", 4, 1, kMaxLayers), num_layers);
  }
  const auto is_flag = [](const Json& value) { return value.is_number_unsigned() && value.get<std::uint64_t>() <= 1; };
  if (!list->is_array() || static_cast<std::int64_t>(list->size()) < num_layers ||
      !std::all_of(list->begin(), list->end(), is_flag)) {
    reader.refuse("no_rope_layers", fmt::format("a list of 0 and 1 for each of {} layers", num_layers));
  }
  std::vector<bool> has_rope;
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    has_rope.push_back((*list)[static_cast<std::size_t>(layer)] == 1);
  }
  return has_rope;
}

void read_smollm3(const JsonReader& reader, ModelConfig& config) {
  const ConfigDefaults defaults{.num_kv_heads = 4,
                                .max_positions = 32768,
                                .rope_theta = 2e6,
                                .tie_word_embeddings = true,
                                .bos_token_id = 128000,
                                .eos_token_id = 128001};
  read_decoder(reader, defaults, config);
  read_biases(reader, config);
  read_rope(reader, defaults.rope_theta, config);
  config.layer_has_rope = read_rope_layers(reader, config.num_layers);
  const std::int64_t window = reader.boolean_or("use_sliding_window", false) ? read_sliding_window(reader, 0) : 0;
  std::vector<bool> is_sliding;
  for (const bool has_rope : config.layer_has_rope) is_sliding.push_back(window > 0 && !has_rope);
  read_sliding_layers(reader, window, std::move(is_sliding), config);
}

struct Family {
  std::string_view model_type;
  void (*read)(const JsonReader&, ModelConfig&);
};

constexpr std::array<Family, 12> kFamilies = {{
    {"llama", read_llama},
    {"mistral", read_mistral},
    {"qwen2", read_qwen2},
    {"qwen3", read_qwen3},
    {"gpt2", read_gpt2},
    {"gemma", read_gemma},
    {"gemma2", read_gemma2},
    {"gemma3_text", read_gemma3_text},
    {"phi3", read_phi3},
    {"olmo2", read_olmo2},
    {"granite", read_granite},
    {"smollm3", read_smollm3},
}};

}  // namespace

bool read_family(const JsonReader& reader, ModelConfig& config) {
  for (const Family& family : kFamilies) {
    if (family.model_type != config.model_type) continue;
    family.read(reader, config);
    return true;
  }
  return false;
}

std::vector<std::string> supported_model_types() {
  std::vector<std::string> names;
  names.reserve(kFamilies.size());
  for (const Family& family : kFamilies) names.emplace_back(family.model_type);
  return names;
}

}  // namespace heddle
