#pragma once

#include "models/model_config.h"

namespace heddle {

/// A Llama of so many blocks, with a tied head.
inline ModelConfig small_model(std::size_t blocks) {
  const Json config = {{"model_type", "llama"},    {"hidden_size", 32},
                       {"intermediate_size", 80},  {"num_hidden_layers", blocks},
                       {"num_attention_heads", 4}, {"num_key_value_heads", 2},
                       {"vocab_size", 64},         {"max_position_embeddings", 512},
                       {"rms_norm_eps", 1e-5},     {"rope_theta", 10000.0},
                       {"hidden_act", "silu"},     {"tie_word_embeddings", true},
                       {"bos_token_id", nullptr},  {"eos_token_id", nullptr}};
  return parse_model_config(config.dump(), "config.json");
}

}  // namespace heddle
