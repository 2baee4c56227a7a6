#include "models/model.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "models/decoder.h"
#include "models/rope_frequencies.h"

namespace heddle {
namespace {

struct Family {
  std::string_view model_type;
  std::string_view prefix;  // of the base model's names
  std::string_view layers;  // of the blocks' names
  Value (*emit_embedding)(Emitter& e, const ModelConfig& c);
  Value (*emit_block)(const BlockContext& block, Value x);
  void (*emit_head)(Emitter& e, const ModelConfig& c, Value x);
};

constexpr Family decoder(std::string_view model_type, Value (*emit_block)(const BlockContext&, Value)) {
  return {model_type, "model.", "model.layers.", emit_decoder_embedding, emit_block, emit_decoder_head};
}

constexpr std::array kFamilies = {
    decoder("llama", emit_llama_block),
    decoder("mistral", emit_llama_block),
    decoder("qwen2", emit_llama_block),
    decoder("gemma", emit_llama_block),
    decoder("granite", emit_llama_block),
    decoder("smollm3", emit_llama_block),
    decoder("qwen3", emit_qwen3_block),
    decoder("gemma2", emit_gemma2_block),
    decoder("gemma3_text", emit_gemma3_block),
    decoder("phi3", emit_phi3_block),
    decoder("olmo2", emit_olmo2_block),
    Family{"gpt2", "transformer.", "transformer.h.", emit_gpt2_embedding, emit_gpt2_block, emit_gpt2_head},
};

const Family& find_family(const std::string& model_type) {
  for (const auto& family : kFamilies) {
    if (family.model_type == model_type) return family;
  }
  fail("model_type {} is not supported", model_type);
}

RopeTable emit_rope_table(Emitter& e, const ModelConfig& c, const RopeConfig& rope) {
  if (rope.type == RopeType::none) return {};
  const auto frequencies_of = [&](std::int64_t ids) {
    return rope_frequencies(rope, c.head_dim, c.max_positions, ids);
  };
  const auto common = frequencies_of(1);
  Attributes a;
  a.set("inv_freq", common.inv_freq);
  a.set("attention_factor", common.attention_factor);
  // Two types choose by the length of each document, in the kernel.
  if (const std::int64_t original = length_of_change(rope, c.max_positions); original > 0) {
    a.set("original_positions", original);
    if (rope.type == RopeType::longrope) {
      a.set("long_inv_freq", frequencies_of(original + 1).inv_freq);
    } else {
      a.set("dynamic_theta", rope.theta);
      a.set("dynamic_factor", rope.factor);
    }
  }
  const auto tables = e.rope_table(std::move(a));
  return {tables[0], tables[1]};
}

}  // namespace

std::vector<std::int64_t> key_cache_limits(const ModelConfig& c) {
  std::vector<std::int64_t> limits;
  for (const RopeConfig& rope : {c.rope, c.local_rope.value_or(c.rope)}) {
    if (rope.type == RopeType::longrope) limits.push_back(length_of_change(rope, c.max_positions));
  }
  std::sort(limits.begin(), limits.end());
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  return limits;
}

std::string base_model_prefix(const ModelConfig& c) { return std::string(find_family(c.model_type).prefix); }

void emit_model(Emitter& e, const ModelConfig& c) {
  const Family& family = find_family(c.model_type);
  e.begin_unit("embedding");
  Value x = family.emit_embedding(e, c);  // [T, hidden]
  const RopeTable rope = emit_rope_table(e, c, c.rope);
  const RopeTable local = c.local_rope ? emit_rope_table(e, c, *c.local_rope) : rope;
  for (std::int64_t layer = 0; layer < c.num_layers; ++layer) {
    const auto index = static_cast<std::size_t>(layer);
    e.begin_unit("block " + std::to_string(layer));
    const bool is_local = !c.layer_is_sliding.empty() && c.layer_is_sliding[index];
    const bool has_rope = c.layer_has_rope.empty() || c.layer_has_rope[index];
    const BlockContext block{e, c, layer, std::string(family.layers) + std::to_string(layer) + ".",
                             !has_rope  ? RopeTable{}
                             : is_local ? local
                                        : rope};
    x = family.emit_block(block, x);
  }
  e.begin_unit("head");
  family.emit_head(e, c, x);
}

}  // namespace heddle
