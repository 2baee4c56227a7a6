#pragma once

#include <string>

#include "base/error.h"
#include "formats/json.h"
#include "models/model_config.h"

namespace heddle {

/// A sound small config of each family in Llama's spelling; `changes` is a JSON object whose members replace or add to
/// its, "drop" as a value removes the key.
inline std::string config_with(const std::string& model_type, const std::string& changes = "{}") {
  Json config = {{"model_type", model_type},   {"vocab_size", 130},      {"hidden_size", 16},
                 {"intermediate_size", 24},    {"num_hidden_layers", 4}, {"num_attention_heads", 4},
                 {"num_key_value_heads", 2},   {"head_dim", 8},          {"max_position_embeddings", 64},
                 {"tie_word_embeddings", true}};
  const Json changed = parse_json(changes, "changes");
  for (const auto& [key, value] : changed.items()) {
    if (value == "drop") {
      config.erase(key);
    } else {
      config[key] = value;
    }
  }
  return config.dump();
}

inline ModelConfig parse(const std::string& model_type, const std::string& changes = "{}") {
  return parse_model_config(config_with(model_type, changes), "config.json");
}

inline std::string config_error(const std::string& text) {
  try {
    parse_model_config(text, "config.json");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace heddle
