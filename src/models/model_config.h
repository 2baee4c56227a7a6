#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/kernel.h"

namespace heddle {

enum class RopeType { none, standard, linear, dynamic, yarn, llama3, longrope };

/// Rotary embedding, with the fields of every type (those of other types keep their defaults). RopeFrequencies
/// (rope_frequencies.h) has the formulas.
struct RopeConfig {
  RopeType type = RopeType::standard;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  double factor = 1.0;
  std::int64_t original_max_position_embeddings = 0;  // dynamic, yarn, llama3, longrope: positions before stretching
  double low_freq_factor = 0, high_freq_factor = 0;   // llama3
  double beta_fast = 32, beta_slow = 1, mscale = 0, mscale_all_dim = 0;  // yarn
  bool truncate = true;                                                  // yarn
  std::optional<double> attention_factor;                                // yarn, longrope
  std::vector<double> short_factor, long_factor;                         // longrope
};

/// A config.json, checked: what the families read to emit their blocks. Every size is positive and consistent, and so
/// bounded that parameter and byte counts of a whole model fit in 63 bits.
struct ModelConfig {
  std::string model_type;
  bool is_bitsandbytes = false;  // quantization_config: its folder's weights lie in bitsandbytes' four bits
  std::int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_layers = 0;
  std::int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0, max_positions = 0;
  bool has_learned_positions = false;  // gpt2: no document may be longer than max_positions
  double norm_epsilon = 1e-6;
  double norm_offset = 0;  // gemma's RMSNorm multiplies by 1 + w
  bool tie_word_embeddings = false;
  Activation activation = Activation::silu;
  bool attention_bias = false, mlp_bias = false;
  bool qkv_bias = false;                 // on q, k and v alone
  RopeConfig rope;                       // of global layers, where local ones differ
  std::optional<RopeConfig> local_rope;  // gemma3
  double attention_scale = 0;            // 0: 1/sqrt(head_dim)
  std::int64_t sliding_window = 0;       // 0: none; key j is seen from i when i - j < window
  std::vector<bool> layer_is_sliding;    // by layer; empty: all are when sliding_window > 0
  std::vector<bool> layer_has_rope;      // by layer, smollm3; empty: all
  double attention_softcap = 0, final_softcap = 0;
  double embedding_multiplier = 1;                     // granite; gemma: sqrt(hidden_size)
  double residual_multiplier = 1, logits_scaling = 1;  // granite
  double initializer_range = 0.02;
  double attention_dropout = 0, hidden_dropout = 0, embedding_dropout = 0;
  bool scale_attention_by_inverse_layer = false;  // gpt2
  /// Of whom the look-up in the embedding has no gradient, as in transformers: padding_idx of its nn.Embedding.
  std::optional<std::int32_t> pad_token_id;
  std::optional<std::int32_t> bos_token_id;  // as written: may lie beyond vocab_size
  std::vector<std::int32_t> eos_token_ids;
  std::string torch_dtype = "float32";
};

/// Parses the text of a config.json (`name` for errors). Throws Error naming file, key, the value found and what was
/// expected; a model_type or feature that is not supported is refused by name.
ModelConfig parse_model_config(const std::string& text, const std::string& name);

/// Names of the supported model types, for messages and docs.
std::vector<std::string> supported_model_types();

}  // namespace heddle
