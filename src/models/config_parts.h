#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "formats/json_reader.h"
#include "models/model_config.h"

// The parts that parse_model_config is made of; for the files of this folder that read a config.json.
namespace heddle {

/// What is not in a config.json: the values of transformers' configuration classes.
struct ConfigDefaults {
  std::int64_t num_kv_heads = 0;  // 0: num_attention_heads
  std::int64_t head_dim = 0;      // 0: hidden_size / num_attention_heads
  std::int64_t max_positions = 2048;
  double norm_epsilon = 1e-6;
  double rope_theta = 10000.0;
  bool tie_word_embeddings = false;
  std::optional<std::int32_t> bos_token_id = std::nullopt, eos_token_id = std::nullopt, pad_token_id = std::nullopt;
};

// Bounds of sizes: far beyond any model, and such that no product of a model's sizes overflows.
inline constexpr std::int64_t kMaxVocab = std::int64_t{1} << 28;
inline constexpr std::int64_t kMaxHidden = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxIntermediate = std::int64_t{1} << 22;
inline constexpr std::int64_t kMaxLayers = std::int64_t{1} << 14;
inline constexpr std::int64_t kMaxHeads = std::int64_t{1} << 14;
inline constexpr std::int64_t kMaxHeadDim = std::int64_t{1} << 14;
inline constexpr std::int64_t kMaxHeadsWidth = std::int64_t{1} << 22;  // heads * head_dim
inline constexpr std::int64_t kMaxPositions = (std::int64_t{1} << 31) - 1;

/// Fills the fields of the named family, or returns false if the type is not supported.
bool read_family(const JsonReader& reader, ModelConfig& config);

/// Sizes, norm, activation (hidden_act), dropout and tokens of a decoder in Llama's spelling.
void read_decoder(const JsonReader& reader, const ConfigDefaults& defaults, ModelConfig& config);
/// GPT-2's spelling: n_embd, n_layer, n_head, ...
void read_gpt2(const JsonReader& reader, ModelConfig& config);

Activation read_activation(const JsonReader& reader, std::string_view key, std::string_view absent);
void read_tokens(const JsonReader& reader, const ConfigDefaults& defaults, ModelConfig& config);

/// rope_theta with rope_scaling (transformers 4), or rope_parameters (5), for a family that rotates all layers alike.
/// Needs head_dim and max_positions.
void read_rope(const JsonReader& reader, double default_theta, ModelConfig& config);
/// Gemma 3: rope_theta with rope_scaling and rope_local_base_freq (4), or rope_parameters by layer type (5).
void read_rope_by_layer_type(const JsonReader& reader, double default_theta, double default_local_theta,
                             ModelConfig& config);

/// sliding_window where null means none and an absent key means `absent` (0: none).
std::int64_t read_sliding_window(const JsonReader& reader, std::int64_t absent);
/// Sets the window and the layers that have it: those that layer_types says, or else `is_sliding`, by layer.
void read_sliding_layers(const JsonReader& reader, std::int64_t window, std::vector<bool> is_sliding,
                         ModelConfig& config);
/// Sets the window of all layers; layer_types must not say otherwise.
void read_uniform_layers(const JsonReader& reader, std::int64_t window, ModelConfig& config);

}  // namespace heddle
