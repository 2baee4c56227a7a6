#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "models/config_parts.h"

namespace heddle {
namespace {

/// heads, key-value heads and head_dim fit together. `heads` and `hidden` are the keys in this family's spelling.
void check_heads(const JsonReader& reader, std::string_view heads, std::string_view hidden, const ModelConfig& config) {
  if (config.head_dim == 0) {
    reader.refuse(heads, fmt::format("a divisor of {} {}", hidden, config.hidden_size));
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    reader.refuse_because("num_key_value_heads", fmt::format("is {}; expected a divisor of {} {}", config.num_kv_heads,
                                                             heads, config.num_heads));
  }
  if (config.num_heads * config.head_dim > kMaxHeadsWidth) {
    reader.refuse(
        heads, fmt::format("at most {} together with head_dim {}", kMaxHeadsWidth / config.head_dim, config.head_dim));
  }
}

/// hidden_size / num_attention_heads, or 0 if that is no whole number.
std::int64_t divided_head_dim(const ModelConfig& config) {
  return config.hidden_size % config.num_heads == 0 ? config.hidden_size / config.num_heads : 0;
}

bool is_token_id(const Json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() <= std::numeric_limits<std::int32_t>::max();
}

}  // namespace

Activation read_activation(const JsonReader& reader, std::string_view key, std::string_view absent) {
  // transformers' activations.py: several names for each of few functions.
  static constexpr std::array<std::pair<std::string_view, Activation>, 10> kNames = {{
      {"silu", Activation::silu},
      {"swish", Activation::silu},
      {"gelu", Activation::gelu},
      {"gelu_python", Activation::gelu},
      {"gelu_new", Activation::gelu_tanh},
      {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"gelu_python_tanh", Activation::gelu_tanh},
      {"gelu_fast", Activation::gelu_tanh},
      {"gelu_accurate", Activation::gelu_tanh},
      {"relu", Activation::relu},
  }};
  const std::string name = reader.text_or(key, std::string(absent));
  std::array<std::string_view, kNames.size()> known;
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i].first == name) return kNames[i].second;
    known[i] = kNames[i].first;
  }
  reader.refuse_choice(key, known);
}

void read_tokens(const JsonReader& reader, const ConfigDefaults& defaults, ModelConfig& config) {
  // A default that the vocabulary does not have was not meant.
  const auto in_vocabulary = [&](std::optional<std::int32_t> id) { return id && *id < config.vocab_size; };
  if (const Json* bos = reader.find("bos_token_id")) {
    if (!is_token_id(*bos)) reader.refuse("bos_token_id", "a token id");
    config.bos_token_id = bos->get<std::int32_t>();
  } else if (!reader.is_null("bos_token_id") && in_vocabulary(defaults.bos_token_id)) {
    config.bos_token_id = defaults.bos_token_id;
  }

  if (const Json* pad = reader.find("pad_token_id")) {
    // Counted from the end where it is negative, as torch does; one that the vocabulary lacks pads nothing.
    if (!pad->is_number_integer()) reader.refuse("pad_token_id", "a token id");
    const auto id = pad->get<std::int64_t>();
    if (id >= -config.vocab_size && id < config.vocab_size)
      config.pad_token_id = static_cast<std::int32_t>(id < 0 ? id + config.vocab_size : id);
  } else if (!reader.is_null("pad_token_id") && in_vocabulary(defaults.pad_token_id)) {
    config.pad_token_id = defaults.pad_token_id;
  }

  if (const Json* eos = reader.find("eos_token_id")) {
    const bool is_list = eos->is_array() && std::all_of(eos->begin(), eos->end(), is_token_id);
    if (!is_list && !is_token_id(*eos)) reader.refuse("eos_token_id", "a token id or a list of them");
    config.eos_token_ids = is_list ? eos->get<std::vector<std::int32_t>>() : std::vector{eos->get<std::int32_t>()};
  } else if (!reader.is_null("eos_token_id") && in_vocabulary(defaults.eos_token_id)) {
    config.eos_token_ids = {*defaults.eos_token_id};
  }
}

void read_decoder(const JsonReader& reader, const ConfigDefaults& defaults, ModelConfig& config) {
  config.vocab_size = reader.integer("vocab_size", 1, kMaxVocab);
  config.hidden_size = reader.integer("hidden_size", 1, kMaxHidden);
  config.intermediate_size = reader.integer("intermediate_size", 1, kMaxIntermediate);
  config.num_layers = reader.integer("num_hidden_layers", 1, kMaxLayers);
  config.num_heads = reader.integer("num_attention_heads", 1, kMaxHeads);
  const bool has_default_kv_heads = defaults.num_kv_heads > 0 && !reader.is_null("num_key_value_heads");
  config.num_kv_heads = reader.integer_or(
      "num_key_value_heads", has_default_kv_heads ? defaults.num_kv_heads : config.num_heads, 1, kMaxHeads);
  const bool has_default_head_dim = defaults.head_dim > 0 && !reader.is_null("head_dim");
  config.head_dim = reader.integer_or("head_dim", has_default_head_dim ? defaults.head_dim : divided_head_dim(config),
                                      1, kMaxHeadDim);
  check_heads(reader, "num_attention_heads", "hidden_size", config);
  config.max_positions = reader.integer_or("max_position_embeddings", defaults.max_positions, 1, kMaxPositions);
  config.norm_epsilon = reader.positive_number_or("rms_norm_eps", defaults.norm_epsilon);
  config.tie_word_embeddings = reader.boolean_or("tie_word_embeddings", defaults.tie_word_embeddings);
  config.activation = read_activation(reader, "hidden_act", "silu");
  config.attention_dropout = reader.number_up_to_or("attention_dropout", 0.0, 1.0);
  read_tokens(reader, defaults, config);
}

void read_gpt2(const JsonReader& reader, ModelConfig& config) {
  config.has_learned_positions = true;
  const std::string_view hidden = reader.either("n_embd", "hidden_size");
  const std::string_view heads = reader.either("n_head", "num_attention_heads");
  config.vocab_size = reader.integer("vocab_size", 1, kMaxVocab);
  config.hidden_size = reader.integer(hidden, 1, kMaxHidden);
  config.intermediate_size = reader.integer_or("n_inner", 4 * config.hidden_size, 1, kMaxIntermediate);
  config.num_layers = reader.integer(reader.either("n_layer", "num_hidden_layers"), 1, kMaxLayers);
  config.num_heads = reader.integer(heads, 1, kMaxHeads);
  config.num_kv_heads = config.num_heads;
  config.head_dim = divided_head_dim(config);
  check_heads(reader, heads, hidden, config);
  config.max_positions =
      reader.integer_or(reader.either("n_positions", "max_position_embeddings"), 1024, 1, kMaxPositions);
  config.norm_epsilon = reader.positive_number_or("layer_norm_epsilon", 1e-5);
  config.tie_word_embeddings = reader.boolean_or("tie_word_embeddings", true);
  config.activation = read_activation(reader, "activation_function", "gelu_new");
  config.attention_bias = config.mlp_bias = true;
  config.attention_dropout = reader.number_up_to_or("attn_pdrop", 0.1, 1.0);
  config.hidden_dropout = reader.number_up_to_or("resid_pdrop", 0.1, 1.0);
  config.embedding_dropout = reader.number_up_to_or("embd_pdrop", 0.1, 1.0);
  if (!reader.boolean_or("scale_attn_weights", true)) config.attention_scale = 1.0;
  config.scale_attention_by_inverse_layer = reader.boolean_or("scale_attn_by_inverse_layer_idx", false);
  config.rope.type = RopeType::none;
  read_tokens(reader, ConfigDefaults{.bos_token_id = 50256, .eos_token_id = 50256}, config);
}

}  // namespace heddle
