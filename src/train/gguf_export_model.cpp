#include "train/gguf_export_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "models/rope_frequencies.h"

namespace heddle {
namespace {

class ArchitectureKeys {
 public:
  ArchitectureKeys(std::string_view architecture, GgufMetadata& metadata)
      : prefix_(std::string(architecture) + "."), metadata_(metadata) {}

  void count(std::string_view key, std::int64_t value) { add(key, static_cast<std::uint64_t>(value)); }
  void number(std::string_view key, double value) { add(key, value); }
  void text(std::string_view key, std::string value) { add(key, std::move(value)); }
  void flags(std::string_view key, std::vector<bool> values) { add(key, std::move(values)); }

 private:
  void add(std::string_view key, GgufValue value) { metadata_.add(prefix_ + std::string(key), std::move(value)); }

  std::string prefix_;
  GgufMetadata& metadata_;
};

bool is_gemma(const ModelConfig& config) { return config.model_type.starts_with("gemma"); }

/// Every period-th layer without a window, as llama.cpp takes it for Gemma 3 unless told.
bool has_usual_windows(const ModelConfig& config) {
  constexpr std::size_t kPeriod = 6;
  for (std::size_t i = 0; i < config.layer_is_sliding.size(); ++i) {
    if (config.layer_is_sliding[i] != ((i + 1) % kPeriod != 0)) return false;
  }
  return true;
}

void add_rope(const ModelConfig& config, ArchitectureKeys& keys) {
  const RopeConfig& rope = config.rope;
  keys.count("rope.dimension_count", rotary_dimensions(rope, config.head_dim));
  keys.number("rope.freq_base", rope.theta);
  if (config.local_rope) keys.number("rope.freq_base_swa", config.local_rope->theta);
  const auto original = [&] {
    keys.count("rope.scaling.original_context_length", rope.original_max_position_embeddings > 0
                                                           ? rope.original_max_position_embeddings
                                                           : config.max_positions);
  };
  switch (rope.type) {
    case RopeType::none:
    case RopeType::standard:
    case RopeType::llama3:           // by a tensor of factors
    case RopeType::dynamic: return;  // cannot be said: gguf_difference() finds it
    case RopeType::linear:
      keys.text("rope.scaling.type", "linear");
      return keys.number("rope.scaling.factor", rope.factor);
    case RopeType::yarn:
      keys.text("rope.scaling.type", "yarn");
      keys.number("rope.scaling.factor", rope.factor);
      original();
      if (rope.attention_factor) keys.number("rope.scaling.yarn_attn_factor", *rope.attention_factor);
      keys.number("rope.scaling.yarn_beta_fast", rope.beta_fast);
      return keys.number("rope.scaling.yarn_beta_slow", rope.beta_slow);
    case RopeType::longrope: {
      keys.text("rope.scaling.type", "longrope");
      original();
      const auto frequencies = rope_frequencies(rope, config.head_dim, config.max_positions, 1);
      return keys.number("rope.scaling.attn_factor", frequencies.attention_factor);
    }
  }
}

/// Of the architectures that have a key for it. (llama.cpp itself computes Mistral's layers without.)
void add_windows(const ModelConfig& config, ArchitectureKeys& keys) {
  constexpr std::array<std::string_view, 4> kFamilies = {"mistral", "gemma2", "gemma3_text", "phi3"};
  const bool has_key = std::find(kFamilies.begin(), kFamilies.end(), config.model_type) != kFamilies.end();
  if (config.sliding_window <= 0 || !has_key) return;
  keys.count("attention.sliding_window", config.sliding_window);
  if (config.model_type == "gemma3_text" && !has_usual_windows(config)) {
    keys.flags("attention.sliding_window_pattern", config.layer_is_sliding);
  }
}

void add_scales(const ModelConfig& config, ArchitectureKeys& keys) {
  if (config.attention_softcap > 0) keys.number("attn_logit_softcapping", config.attention_softcap);
  if (config.final_softcap > 0) keys.number("final_logit_softcapping", config.final_softcap);
  if (config.model_type != "granite") return;
  keys.number("attention.scale", config.attention_scale);
  keys.number("embedding_scale", config.embedding_multiplier);
  keys.number("residual_scale", config.residual_multiplier);
  keys.number("logit_scale", config.logits_scaling);
}

/// 0 where the layer sees everything.
std::int64_t window_of(const ModelConfig& config, std::int64_t layer) {
  const bool has_window = config.layer_is_sliding.empty() || config.layer_is_sliding[static_cast<std::size_t>(layer)];
  return has_window && config.sliding_window < config.max_positions ? config.sliding_window : 0;
}

bool has_rope(const ModelConfig& config, std::int64_t layer) {
  return config.layer_has_rope.empty() || config.layer_has_rope[static_cast<std::size_t>(layer)];
}

bool is_near(double a, double b) { return std::fabs(a - b) <= 1e-5 * std::max(std::fabs(a), std::fabs(b)); }

double attention_scale_of(const ModelConfig& config) {
  return config.attention_scale > 0 ? config.attention_scale : 1.0 / std::sqrt(static_cast<double>(config.head_dim));
}

std::string rope_difference(const RopeConfig& want, const RopeConfig& got, const ModelConfig& config) {
  if ((want.type == RopeType::none) != (got.type == RopeType::none)) return "rope_type";
  if (want.type == RopeType::none) return "";
  const std::int64_t original = want.original_max_position_embeddings;
  for (const std::int64_t length : {std::int64_t{1}, original + 1, config.max_positions}) {
    const auto a = rope_frequencies(want, config.head_dim, config.max_positions, length);
    const auto b = rope_frequencies(got, config.head_dim, config.max_positions, length);
    if (!std::equal(a.inv_freq.begin(), a.inv_freq.end(), b.inv_freq.begin(), b.inv_freq.end(), is_near) ||
        !is_near(a.attention_factor, b.attention_factor)) {
      return fmt::format("rope at {} positions", length);
    }
  }
  return "";
}

}  // namespace

void add_gguf_model_keys(const ModelConfig& config, std::string_view architecture, GgufMetadata& metadata) {
  ArchitectureKeys keys(architecture, metadata);
  keys.count("block_count", config.num_layers);
  keys.count("context_length", config.max_positions);
  keys.count("embedding_length", config.hidden_size);
  keys.count("feed_forward_length", config.intermediate_size);
  keys.count("attention.head_count", config.num_heads);
  if (config.model_type == "gpt2") return keys.number("attention.layer_norm_epsilon", config.norm_epsilon);
  keys.count("attention.head_count_kv", config.num_kv_heads);
  keys.number("attention.layer_norm_rms_epsilon", config.norm_epsilon);
  keys.count("vocab_size", config.vocab_size);
  if (is_gemma(config) || config.head_dim * config.num_heads != config.hidden_size) {
    keys.count("attention.key_length", config.head_dim);
    keys.count("attention.value_length", config.head_dim);
  }
  add_rope(config, keys);
  add_windows(config, keys);
  add_scales(config, keys);
}

std::vector<RopeFactorTensor> gguf_rope_factors(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  const auto narrow = [](const std::vector<double>& values) {
    return std::vector<float>(values.begin(), values.end());
  };
  if (rope.type == RopeType::longrope) {
    return {{"rope_factors_long.weight", narrow(rope.long_factor)},
            {"rope_factors_short.weight", narrow(rope.short_factor)}};
  }
  if (rope.type != RopeType::llama3) return {};
  RopeConfig plain;
  plain.theta = rope.theta;
  plain.partial_rotary_factor = rope.partial_rotary_factor;
  const auto scaled = rope_frequencies(rope, config.head_dim, config.max_positions, 1).inv_freq;
  auto factors = rope_frequencies(plain, config.head_dim, config.max_positions, 1).inv_freq;
  for (std::size_t i = 0; i < factors.size(); ++i) factors[i] /= scaled[i];
  return {{"rope_freqs.weight", narrow(factors)}};
}

std::string gguf_difference(const ModelConfig& want, const ModelConfig& got) {
  const auto differs = [&](auto ModelConfig::*field) { return want.*field != got.*field; };
  const auto differs_by_far = [&](double ModelConfig::*field) { return !is_near(want.*field, got.*field); };
  if (differs(&ModelConfig::vocab_size)) return "vocab_size";
  if (differs(&ModelConfig::hidden_size)) return "hidden_size";
  if (differs(&ModelConfig::intermediate_size)) return "intermediate_size";
  if (differs(&ModelConfig::num_layers)) return "num_hidden_layers";
  if (differs(&ModelConfig::num_heads)) return "num_attention_heads";
  if (differs(&ModelConfig::num_kv_heads)) return "num_key_value_heads";
  if (differs(&ModelConfig::head_dim)) return "head_dim";
  if (differs(&ModelConfig::max_positions)) return "max_position_embeddings";
  if (differs(&ModelConfig::has_learned_positions)) return "learned positions";
  if (differs(&ModelConfig::tie_word_embeddings)) return "tie_word_embeddings";
  if (differs(&ModelConfig::activation)) return "hidden_act";
  if (differs(&ModelConfig::attention_bias) || differs(&ModelConfig::qkv_bias)) return "attention_bias";
  if (differs(&ModelConfig::mlp_bias)) return "mlp_bias";
  if (differs(&ModelConfig::scale_attention_by_inverse_layer)) return "scale_attn_by_inverse_layer_idx";
  if (differs_by_far(&ModelConfig::norm_epsilon)) return "the norms' epsilon";
  if (differs_by_far(&ModelConfig::norm_offset)) return "the norms' offset";
  if (!is_near(attention_scale_of(want), attention_scale_of(got))) return "the scale of attention scores";
  if (differs_by_far(&ModelConfig::attention_softcap)) return "attn_logit_softcapping";
  if (differs_by_far(&ModelConfig::final_softcap)) return "final_logit_softcapping";
  if (differs_by_far(&ModelConfig::embedding_multiplier)) return "embedding_multiplier";
  if (differs_by_far(&ModelConfig::residual_multiplier)) return "residual_multiplier";
  if (differs_by_far(&ModelConfig::logits_scaling)) return "logits_scaling";
  for (std::int64_t layer = 0; layer < want.num_layers; ++layer) {
    if (window_of(want, layer) != window_of(got, layer)) return fmt::format("the window of layer {}", layer);
    if (has_rope(want, layer) != has_rope(got, layer)) return fmt::format("the rope of layer {}", layer);
  }
  if (want.local_rope.has_value() != got.local_rope.has_value()) return "rope_local_base_freq";
  if (want.local_rope) {
    if (auto difference = rope_difference(*want.local_rope, *got.local_rope, want); !difference.empty()) {
      return "local " + difference;
    }
  }
  return rope_difference(want.rope, got.rope, want);
}

}  // namespace heddle
