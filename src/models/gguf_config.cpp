#include "models/gguf_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/error.h"
#include "formats/json.h"
#include "models/config_parts.h"
#include "models/gguf_names.h"
#include "models/gguf_rope.h"

// Keys by https://github.com/ggml-org/ggml/blob/master/docs/gguf.md and, where a key is absent, what llama.cpp takes.
namespace heddle {
namespace {

/// Metadata of one architecture: its keys without their prefix. Remembers which were asked for.
class Keys {
 public:
  Keys(const GgufFile& file, std::string architecture)
      : file_(file), metadata_(file.metadata()), prefix_(std::move(architecture) + ".") {}

  const GgufFile& file() const { return file_; }
  std::string full(std::string_view key) const { return prefix_ + std::string(key); }
  bool has(std::string_view key) { return metadata_.has(asked(key)); }
  std::int64_t integer(std::string_view key, std::int64_t max) { return metadata_.integer(asked(key), 1, max); }
  std::int64_t integer_or(std::string_view key, std::int64_t absent, std::int64_t max) {
    return metadata_.integer_or(asked(key), absent, 0, max);
  }
  /// GGUF has floats where config.json has decimals: the shortest decimal that is this float.
  double number(std::string_view key) { return decimal_of(metadata_.number(asked(key))); }
  double number_or(std::string_view key, double absent) { return has(key) ? number(key) : absent; }
  std::string text_or(std::string_view key, std::string absent) {
    return metadata_.text_or(asked(key), std::move(absent));
  }
  bool boolean_or(std::string_view key, bool absent) { return metadata_.boolean_or(asked(key), absent); }

  /// A number, or a list with the same number for each layer.
  std::int64_t of_all_layers(std::string_view key, std::int64_t max) {
    const auto* list = metadata_.find(asked(key)) == nullptr ? nullptr : list_of(key);
    if (list == nullptr) return integer(key, max);
    if (list->empty() || std::any_of(list->begin(), list->end(), [&](auto n) { return n != list->front(); }) ||
        list->front() < 1 || list->front() > max) {
      refuse(key, fmt::format("the same number, 1 to {}, for all layers", max));
    }
    return list->front();
  }
  const std::vector<std::int64_t>* list_of(std::string_view key) {
    const GgufValue* value = metadata_.find(asked(key));
    return value == nullptr ? nullptr : std::get_if<std::vector<std::int64_t>>(value);
  }

  void ignore(std::string_view key) { asked(key); }
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const {
    metadata_.refuse(full(key), expected);
  }

  /// Nobody has read it, so nobody knows what it would change.
  void refuse_unread() const {
    for (const auto& [key, value] : metadata_.entries()) {
      if (!key.starts_with(prefix_) || std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
      metadata_.refuse(key, "no such key: what it means for the model is not supported");
    }
  }

 private:
  static double decimal_of(double value) {
    const auto narrow = static_cast<float>(value);
    if (static_cast<double>(narrow) != value) return value;
    std::array<char, 64> text{};
    const auto end = std::to_chars(text.data(), text.data() + text.size() - 1, narrow).ptr;
    *end = '\0';
    return std::strtod(text.data(), nullptr);
  }
  const std::string& asked(std::string_view key) { return asked_.emplace_back(full(key)); }

  const GgufFile& file_;
  const GgufMetadata& metadata_;
  std::string prefix_;
  std::vector<std::string> asked_;
};

bool has_tensor(const GgufFile& file, std::string_view name) { return file.find(name) != nullptr; }

/// Rows and columns of a matrix that must be there.
const std::vector<std::int64_t>& matrix_shape(const GgufFile& file, std::string_view name) {
  const StoredTensor* tensor = file.find(name);
  if (tensor == nullptr) fail("{}: tensor {} is missing", file.path(), name);
  if (tensor->shape.size() != 2) {
    fail("{}: tensor {} has {} dimensions; expected 2", file.path(), name, tensor->shape.size());
  }
  return tensor->shape;
}

/// What weights are exported as unless told otherwise: the type of the matrices where all have the same, else fp32.
std::string torch_dtype_of(const GgufFile& file) {
  std::optional<DType> common;
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.shape.size() < 2) continue;
    if (common.value_or(tensor.dtype) != tensor.dtype) return "float32";
    common = tensor.dtype;
  }
  const bool is_plain = common == DType::f16 || common == DType::bf16;
  return std::string(torch_name(is_plain ? *common : DType::f32));
}

Json token_id(const GgufMetadata& metadata, const std::string& key) {
  const std::string full = "tokenizer.ggml." + key + "_token_id";
  if (!metadata.has(full) || metadata.integer(full, INT32_MIN, UINT32_MAX) == UINT32_MAX) return nullptr;  // -1: none
  return metadata.integer(full, 0, INT32_MAX);
}

/// The end of a turn ends a text too, where it is another token than the end of a text.
Json end_ids(const GgufMetadata& metadata) {
  Json end = token_id(metadata, "eos"), turn = token_id(metadata, "eot");
  if (end.is_null() || turn.is_null() || end == turn) return end;
  return Json::array({end, turn});
}

void add_tokens(const GgufMetadata& metadata, Json& config) {
  config["bos_token_id"] = token_id(metadata, "bos");
  config["eos_token_id"] = end_ids(metadata);
  config["pad_token_id"] = token_id(metadata, "padding");
}

void refuse_if_positive(Keys& keys, std::string_view key, std::string_view expected) {
  if (keys.has(key) && keys.number(key) != 0.0) keys.refuse(key, expected);
}

/// Keys that no supported family has, where they say anything.
void refuse_features(Keys& keys) {
  for (const std::string_view key : {"expert_count", "expert_used_count"}) {
    refuse_if_positive(keys, key, "0: a mixture of experts is not supported");
  }
  if (!keys.boolean_or("attention.causal", true)) keys.refuse("attention.causal", "true");
  if (keys.boolean_or("use_parallel_residual", false)) keys.refuse("use_parallel_residual", "false");
  for (const std::string_view key : {"attention.max_alibi_bias", "attention.clamp_kqv", "pooling_type"}) {
    refuse_if_positive(keys, key, "0: that is not supported");
  }
}

/// Sizes in Llama's spelling.
void add_sizes(Keys& keys, Json& config) {
  const std::int64_t layers = keys.integer("block_count", kMaxLayers);
  const std::int64_t hidden = keys.integer("embedding_length", kMaxHidden);
  const std::int64_t heads = keys.of_all_layers("attention.head_count", kMaxHeads);
  const std::int64_t kv_heads =
      keys.has("attention.head_count_kv") ? keys.of_all_layers("attention.head_count_kv", kMaxHeads) : heads;
  config["vocab_size"] = matrix_shape(keys.file(), "token_embd.weight")[0];
  keys.ignore("vocab_size");  // the table's rows are what counts
  config["hidden_size"] = hidden;
  config["intermediate_size"] = keys.of_all_layers("feed_forward_length", kMaxIntermediate);
  config["num_hidden_layers"] = layers;
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = kv_heads;
  if (!keys.has("attention.key_length") && hidden % heads != 0) {
    keys.refuse("attention.head_count", fmt::format("a divisor of embedding_length {}", hidden));
  }
  const std::int64_t head_dim = keys.integer_or("attention.key_length", hidden / heads, kMaxHeadDim);
  if (keys.integer_or("attention.value_length", head_dim, kMaxHeadDim) != head_dim) {
    keys.refuse("attention.value_length", fmt::format("{}, as attention.key_length", head_dim));
  }
  config["head_dim"] = head_dim;
  config["max_position_embeddings"] = keys.integer("context_length", kMaxPositions);
  config["rms_norm_eps"] = keys.number("attention.layer_norm_rms_epsilon");
}

void add_attention_bias(Keys& keys, Json& config) {
  config["attention_bias"] =
      has_tensor(keys.file(), "blk.0.attn_q.bias") || has_tensor(keys.file(), "blk.0.attn_output.bias");
}

void add_llama(Keys& keys, Json& config) {
  add_attention_bias(keys, config);
  config["mlp_bias"] = has_tensor(keys.file(), "blk.0.ffn_up.bias");
  config["hidden_act"] = "silu";
  keys.ignore("tensor_data_layout");
  if (const std::int64_t window = keys.integer_or("attention.sliding_window", 0, kMaxPositions); window > 0) {
    config["model_type"] = "mistral";
    config["architectures"] = Json::array({"MistralForCausalLM"});
    config["sliding_window"] = window;
  }
}

void add_qwen2(Keys&, Json& config) {
  config["hidden_act"] = "silu";
  config["use_sliding_window"] = false;
}

void add_qwen3(Keys& keys, Json& config) {
  add_attention_bias(keys, config);
  add_qwen2(keys, config);
}

void add_gemma(Keys&, Json& config) {
  config["hidden_act"] = "gelu_pytorch_tanh";
  config["hidden_activation"] = "gelu_pytorch_tanh";
}

/// GGUF has no key for it: by size, as llama.cpp does. The largest models divide by hidden_size / heads.
void add_query_scale(Json& config, std::int64_t layers_of_largest) {
  const auto of = [&](const char* key) { return config[key].get<std::int64_t>(); };
  config["query_pre_attn_scalar"] =
      of("num_hidden_layers") == layers_of_largest ? of("hidden_size") / of("num_attention_heads") : of("head_dim");
}

void add_gemma2(Keys& keys, Json& config) {
  add_gemma(keys, config);
  add_query_scale(config, 46);
  config["attn_logit_softcapping"] = keys.number_or("attn_logit_softcapping", 50.0);
  config["final_logit_softcapping"] = keys.number_or("final_logit_softcapping", 30.0);
  config["sliding_window"] = keys.has("attention.sliding_window")
                                 ? keys.integer("attention.sliding_window", kMaxPositions)
                                 : std::int64_t{4096};
}

/// true for the layers with a window: each but the `period`th, or those that a list names.
std::vector<bool> gemma3_windows(Keys& keys, std::int64_t layers) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  const std::int64_t window = keys.integer_or("attention.sliding_window", 0, kMaxPositions);
  std::vector<bool> windows(static_cast<std::size_t>(layers), false);
  const GgufValue* value = keys.file().metadata().find(keys.full(kPattern));
  if (value != nullptr && std::holds_alternative<std::vector<bool>>(*value)) {
    keys.ignore(kPattern);
    windows = std::get<std::vector<bool>>(*value);
    if (static_cast<std::int64_t>(windows.size()) != layers) keys.refuse(kPattern, "a value for each layer");
  } else if (window > 0) {
    const std::int64_t period = keys.integer_or(kPattern, 6, kMaxLayers);
    for (std::int64_t i = 0; i < layers; ++i) {
      windows[static_cast<std::size_t>(i)] = period > 0 && (i + 1) % period != 0;
    }
  }
  return windows;
}

void add_gemma3(Keys& keys, Json& config) {
  add_gemma(keys, config);
  add_query_scale(config, 62);
  const std::int64_t window = keys.integer_or("attention.sliding_window", 0, kMaxPositions);
  config["sliding_window"] = window > 0 ? Json(window) : Json();
  Json types = Json::array();
  for (const bool has_window : gemma3_windows(keys, config["num_hidden_layers"].get<std::int64_t>())) {
    types.push_back(has_window ? "sliding_attention" : "full_attention");
  }
  config["layer_types"] = std::move(types);
  config["rope_local_base_freq"] = keys.number_or("rope.freq_base_swa", 10000.0);
  const double cap = keys.number_or("final_logit_softcapping", 0.0);
  config["final_logit_softcapping"] = cap > 0 ? Json(cap) : Json();
  config["attn_logit_softcapping"] = nullptr;
  keys.ignore("mm.tokens_per_image");
}

void add_phi3(Keys& keys, Json& config) {
  config["hidden_act"] = "silu";
  const std::int64_t window = keys.integer_or("attention.sliding_window", 0, kMaxPositions);
  config["sliding_window"] = window > 0 ? Json(window) : Json();
  config["original_max_position_embeddings"] = keys.integer_or(
      "rope.scaling.original_context_length", config["max_position_embeddings"].get<std::int64_t>(), kMaxPositions);
}

void add_olmo2(Keys& keys, Json& config) {
  config["hidden_act"] = "silu";
  add_attention_bias(keys, config);
}

void add_granite(Keys& keys, Json& config) {
  add_attention_bias(keys, config);
  config["mlp_bias"] = has_tensor(keys.file(), "blk.0.ffn_up.bias");
  config["hidden_act"] = "silu";
  config["embedding_multiplier"] = keys.number_or("embedding_scale", 1.0);
  config["residual_multiplier"] = keys.number_or("residual_scale", 1.0);
  // Without the key llama.cpp divides by sqrt(head_dim).
  const auto head_dim = config["head_dim"].get<double>();
  config["attention_multiplier"] = keys.number_or("attention.scale", 1.0 / std::sqrt(head_dim));
  config["logits_scaling"] = keys.number_or("logit_scale", 1.0);
}

void add_smollm3(Keys& keys, Json& config) {
  add_attention_bias(keys, config);
  config["mlp_bias"] = has_tensor(keys.file(), "blk.0.ffn_up.bias");
  config["hidden_act"] = "silu";
  config["use_sliding_window"] = false;
  config["no_rope_layer_interval"] = 4;  // llama.cpp knows no other
  Json has_rope = Json::array();
  const auto layers = config["num_hidden_layers"].get<std::int64_t>();
  for (std::int64_t i = 0; i < layers; ++i) has_rope.push_back((i + 1) % 4 != 0 ? 1 : 0);
  config["no_rope_layers"] = std::move(has_rope);
}

void add_gpt2(Keys& keys, Json& config) {
  config["vocab_size"] = matrix_shape(keys.file(), "token_embd.weight")[0];
  keys.ignore("vocab_size");
  config["n_embd"] = keys.integer("embedding_length", kMaxHidden);
  config["n_layer"] = keys.integer("block_count", kMaxLayers);
  config["n_head"] = keys.of_all_layers("attention.head_count", kMaxHeads);
  keys.ignore("attention.head_count_kv");  // as many
  config["n_positions"] = matrix_shape(keys.file(), "position_embd.weight")[0];
  config["n_ctx"] = config["n_positions"];
  keys.ignore("context_length");
  config["n_inner"] = keys.integer("feed_forward_length", kMaxIntermediate);
  config["layer_norm_epsilon"] = keys.number("attention.layer_norm_epsilon");
  config["activation_function"] = "gelu_new";
}

struct Family {
  std::string_view model_type, class_name;
  void (*add)(Keys&, Json&);
};

constexpr std::array<Family, 11> kFamilies = {{
    {"llama", "LlamaForCausalLM", add_llama},
    {"qwen2", "Qwen2ForCausalLM", add_qwen2},
    {"qwen3", "Qwen3ForCausalLM", add_qwen3},
    {"gemma", "GemmaForCausalLM", add_gemma},
    {"gemma2", "Gemma2ForCausalLM", add_gemma2},
    {"gemma3_text", "Gemma3ForCausalLM", add_gemma3},
    {"phi3", "Phi3ForCausalLM", add_phi3},
    {"olmo2", "Olmo2ForCausalLM", add_olmo2},
    {"granite", "GraniteForCausalLM", add_granite},
    {"smollm3", "SmolLM3ForCausalLM", add_smollm3},
    {"gpt2", "GPT2LMHeadModel", add_gpt2},
}};

const Family& find_family(const GgufFile& file) {
  const GgufMetadata& metadata = file.metadata();
  if (metadata.integer_or("split.count", 1, 0, 65535) > 1) {
    metadata.refuse("split.count",
                    "1: a model split over files is not supported (llama-gguf-split --merge joins them)");
  }
  if (metadata.text_or("general.type", "model") != "model") metadata.refuse("general.type", "model");
  const auto model_type = model_type_of_gguf(metadata.text("general.architecture"));
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return family;
  }
  std::string known;
  for (const Family& family : kFamilies) {
    known.append(known.empty() ? "" : ", ").append(*gguf_architecture(family.model_type));
  }
  metadata.refuse("general.architecture", known);
}

}  // namespace

bool is_gguf_config_tensor(std::string_view name) {
  return name == kRopeFactors || name == kRopeLongFactors || name == kRopeShortFactors;
}

std::string gguf_model_config(const GgufFile& file) {
  const Family& family = find_family(file);
  Keys keys(file, file.metadata().text("general.architecture"));
  refuse_features(keys);
  Json config = Json::object();
  config["architectures"] = Json::array({family.class_name});
  config["model_type"] = family.model_type;
  const bool is_decoder = family.model_type != "gpt2";
  if (is_decoder) add_sizes(keys, config);
  family.add(keys, config);
  if (is_decoder) {
    GgufRope rope;
    rope.theta = keys.number_or("rope.freq_base", 10000.0);
    rope.head_dim = config["head_dim"].get<std::int64_t>();
    rope.dimensions = keys.integer_or("rope.dimension_count", rope.head_dim, kMaxHeadDim);
    rope.positions = config["max_position_embeddings"].get<std::int64_t>();
    rope.type = keys.text_or("rope.scaling.type", "");
    rope.factor = keys.number_or("rope.scaling.factor", keys.number_or("rope.scale_linear", 0.0));
    rope.original_positions = keys.integer_or("rope.scaling.original_context_length", 0, kMaxPositions);
    rope.attention_factor =
        keys.number_or("rope.scaling.yarn_attn_factor", keys.number_or("rope.scaling.attn_factor", 0.0));
    rope.beta_fast = keys.number_or("rope.scaling.yarn_beta_fast", 0.0);
    rope.beta_slow = keys.number_or("rope.scaling.yarn_beta_slow", 0.0);
    if (keys.number_or("rope.scaling.yarn_ext_factor", 1.0) != 1.0) keys.refuse("rope.scaling.yarn_ext_factor", "1");
    refuse_if_positive(keys, "rope.scaling.yarn_log_multiplier", "0: that is not supported");
    keys.ignore("rope.scaling.finetuned");
    add_gguf_rope(file, rope, config);
  }
  keys.refuse_unread();
  config["initializer_range"] = 0.02;
  config["tie_word_embeddings"] = !has_tensor(file, "output.weight");
  add_tokens(file.metadata(), config);
  config["torch_dtype"] = torch_dtype_of(file);
  config["use_cache"] = true;
  return config.dump(2) + "\n";
}

}  // namespace heddle
