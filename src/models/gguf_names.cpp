#include "models/gguf_names.h"

#include <algorithm>
#include <array>
#include <span>

namespace heddle {
namespace {

/// A tensor without its suffix (.weight, .bias). The change is of the weight; pair_rows of the bias as well.
struct Stem {
  std::string_view hugging_face, gguf;
  GgufChange change = GgufChange::none;
};

constexpr GgufChange kPair = GgufChange::pair_rows, kOne = GgufChange::add_one, kTranspose = GgufChange::transpose;

constexpr std::array<Stem, 3> kDecoder = {
    {{"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"}}};
constexpr std::array<Stem, 3> kGemma = {
    {{"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm", kOne}, {"lm_head", "output"}}};
constexpr std::array<Stem, 4> kGpt2 = {{{"transformer.wte", "token_embd"},
                                        {"transformer.wpe", "position_embd"},
                                        {"transformer.ln_f", "output_norm"},
                                        {"lm_head", "output"}}};

constexpr std::array<Stem, 9> kLlamaBlock = {{{"input_layernorm", "attn_norm"},
                                              {"self_attn.q_proj", "attn_q", kPair},
                                              {"self_attn.k_proj", "attn_k", kPair},
                                              {"self_attn.v_proj", "attn_v"},
                                              {"self_attn.o_proj", "attn_output"},
                                              {"post_attention_layernorm", "ffn_norm"},
                                              {"mlp.gate_proj", "ffn_gate"},
                                              {"mlp.up_proj", "ffn_up"},
                                              {"mlp.down_proj", "ffn_down"}}};
constexpr std::array<Stem, 11> kQwenBlock = {{{"input_layernorm", "attn_norm"},
                                              {"self_attn.q_proj", "attn_q"},
                                              {"self_attn.k_proj", "attn_k"},
                                              {"self_attn.v_proj", "attn_v"},
                                              {"self_attn.o_proj", "attn_output"},
                                              {"self_attn.q_norm", "attn_q_norm"},
                                              {"self_attn.k_norm", "attn_k_norm"},
                                              {"post_attention_layernorm", "ffn_norm"},
                                              {"mlp.gate_proj", "ffn_gate"},
                                              {"mlp.up_proj", "ffn_up"},
                                              {"mlp.down_proj", "ffn_down"}}};
constexpr std::array<Stem, 9> kGemmaBlock = {{{"input_layernorm", "attn_norm", kOne},
                                              {"self_attn.q_proj", "attn_q"},
                                              {"self_attn.k_proj", "attn_k"},
                                              {"self_attn.v_proj", "attn_v"},
                                              {"self_attn.o_proj", "attn_output"},
                                              {"post_attention_layernorm", "ffn_norm", kOne},
                                              {"mlp.gate_proj", "ffn_gate"},
                                              {"mlp.up_proj", "ffn_up"},
                                              {"mlp.down_proj", "ffn_down"}}};
constexpr std::array<Stem, 13> kNewerGemmaBlock = {{{"input_layernorm", "attn_norm", kOne},
                                                    {"self_attn.q_proj", "attn_q"},
                                                    {"self_attn.k_proj", "attn_k"},
                                                    {"self_attn.v_proj", "attn_v"},
                                                    {"self_attn.o_proj", "attn_output"},
                                                    {"self_attn.q_norm", "attn_q_norm", kOne},
                                                    {"self_attn.k_norm", "attn_k_norm", kOne},
                                                    {"post_attention_layernorm", "post_attention_norm", kOne},
                                                    {"pre_feedforward_layernorm", "ffn_norm", kOne},
                                                    {"mlp.gate_proj", "ffn_gate"},
                                                    {"mlp.up_proj", "ffn_up"},
                                                    {"mlp.down_proj", "ffn_down"},
                                                    {"post_feedforward_layernorm", "post_ffw_norm", kOne}}};
constexpr std::array<Stem, 6> kPhi3Block = {{{"input_layernorm", "attn_norm"},
                                             {"self_attn.qkv_proj", "attn_qkv"},
                                             {"self_attn.o_proj", "attn_output"},
                                             {"post_attention_layernorm", "ffn_norm"},
                                             {"mlp.gate_up_proj", "ffn_up"},
                                             {"mlp.down_proj", "ffn_down"}}};
constexpr std::array<Stem, 11> kOlmo2Block = {{{"self_attn.q_proj", "attn_q"},
                                               {"self_attn.k_proj", "attn_k"},
                                               {"self_attn.v_proj", "attn_v"},
                                               {"self_attn.o_proj", "attn_output"},
                                               {"self_attn.q_norm", "attn_q_norm"},
                                               {"self_attn.k_norm", "attn_k_norm"},
                                               {"post_attention_layernorm", "post_attention_norm"},
                                               {"mlp.gate_proj", "ffn_gate"},
                                               {"mlp.up_proj", "ffn_up"},
                                               {"mlp.down_proj", "ffn_down"},
                                               {"post_feedforward_layernorm", "post_ffw_norm"}}};
constexpr std::array<Stem, 6> kGpt2Block = {{{"ln_1", "attn_norm"},
                                             {"attn.c_attn", "attn_qkv", kTranspose},
                                             {"attn.c_proj", "attn_output", kTranspose},
                                             {"ln_2", "ffn_norm"},
                                             {"mlp.c_fc", "ffn_up", kTranspose},
                                             {"mlp.c_proj", "ffn_down", kTranspose}}};

struct Family {
  std::string_view model_type, architecture;
  std::string_view layers;  // prefix of the blocks' names
  std::span<const Stem> model, block;
};

constexpr std::array<Family, 12> kFamilies = {{
    {"llama", "llama", "model.layers.", kDecoder, kLlamaBlock},
    {"mistral", "llama", "model.layers.", kDecoder, kLlamaBlock},
    {"qwen2", "qwen2", "model.layers.", kDecoder, kQwenBlock},
    {"qwen3", "qwen3", "model.layers.", kDecoder, kQwenBlock},
    {"gemma", "gemma", "model.layers.", kGemma, kGemmaBlock},
    {"gemma2", "gemma2", "model.layers.", kGemma, kNewerGemmaBlock},
    {"gemma3_text", "gemma3", "model.layers.", kGemma, kNewerGemmaBlock},
    {"phi3", "phi3", "model.layers.", kDecoder, kPhi3Block},
    {"olmo2", "olmo2", "model.layers.", kDecoder, kOlmo2Block},
    {"granite", "granite", "model.layers.", kDecoder, kLlamaBlock},
    {"smollm3", "smollm3", "model.layers.", kDecoder, kLlamaBlock},
    {"gpt2", "gpt2", "transformer.h.", kGpt2, kGpt2Block},
}};
constexpr std::string_view kGgufLayers = "blk.";

const Family* find_family(std::string_view model_type) {
  for (const Family& family : kFamilies) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

/// A name cut into "PREFIX", "3", "STEM", ".weight"; `layer` is empty outside of blocks.
struct Parts {
  std::string_view layer, stem, suffix;
};

std::optional<Parts> cut(std::string_view name, std::string_view layers) {
  Parts parts;
  for (const std::string_view suffix : {".weight", ".bias"}) {
    if (name.ends_with(suffix)) parts.suffix = suffix;
  }
  if (parts.suffix.empty()) return std::nullopt;
  name.remove_suffix(parts.suffix.size());
  if (name.starts_with(layers)) {
    name.remove_prefix(layers.size());
    const auto digits = std::min(name.find_first_not_of("0123456789"), name.size());
    if (digits == 0 || digits == name.size() || name[digits] != '.') return std::nullopt;
    parts.layer = name.substr(0, digits);
    name.remove_prefix(digits + 1);
  }
  parts.stem = name;
  return parts;
}

using Side = std::string_view Stem::*;

std::optional<GgufName> translate(const Family& family, std::string_view name, std::string_view from_layers, Side from,
                                  std::string_view to_layers, Side to) {
  const auto parts = cut(name, from_layers);
  if (!parts) return std::nullopt;
  const auto stems = parts->layer.empty() ? family.model : family.block;
  const auto found = std::find_if(stems.begin(), stems.end(), [&](const Stem& s) { return s.*from == parts->stem; });
  if (found == stems.end()) return std::nullopt;
  GgufName result;
  if (!parts->layer.empty()) result.name.append(to_layers).append(parts->layer).append(".");
  result.name.append((*found).*to).append(parts->suffix);
  if (parts->suffix == ".weight" || found->change == GgufChange::pair_rows) result.change = found->change;
  return result;
}

}  // namespace

std::optional<std::string_view> gguf_architecture(std::string_view model_type) {
  const Family* family = find_family(model_type);
  return family == nullptr ? std::nullopt : std::optional(family->architecture);
}

std::optional<std::string_view> model_type_of_gguf(std::string_view architecture) {
  for (const Family& family : kFamilies) {
    if (family.architecture == architecture) return family.model_type;
  }
  return std::nullopt;
}

std::optional<GgufName> to_gguf_name(std::string_view model_type, std::string_view name) {
  const Family* family = find_family(model_type);
  if (family == nullptr) return std::nullopt;
  return translate(*family, name, family->layers, &Stem::hugging_face, kGgufLayers, &Stem::gguf);
}

std::optional<GgufName> from_gguf_name(std::string_view model_type, std::string_view name) {
  const Family* family = find_family(model_type);
  if (family == nullptr) return std::nullopt;
  return translate(*family, name, kGgufLayers, &Stem::gguf, family->layers, &Stem::hugging_face);
}

std::int64_t paired_row(std::int64_t row, std::int64_t head_dim) {
  const std::int64_t in_head = row % head_dim, half = head_dim / 2;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

std::int64_t unpaired_row(std::int64_t row, std::int64_t head_dim) {
  const std::int64_t in_head = row % head_dim;
  return row - in_head + (in_head % 2) * (head_dim / 2) + in_head / 2;
}

}  // namespace heddle
