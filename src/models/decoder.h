#pragma once

#include <cstdint>
#include <string>

#include "models/model_config.h"
#include "ops/emitter.h"

/// What decoder families have in common: the pieces that their blocks are composed of.
namespace heddle {

/// cos and sin of one rotary embedding, f32 [T, R/2]; absent for models without.
struct RopeTable {
  Value cosine, sine;
};

/// Where a block stands: its index, the prefix of its names, the tables of its stack.
struct BlockContext {
  Emitter& e;
  const ModelConfig& c;
  std::int64_t layer;
  std::string prefix;  // "model.layers.3."
  RopeTable rope;      // of this layer

  Value weight(const std::string& name, Shape shape) const;             // [out, in], normal(0, initializer_range)
  Value bias(const std::string& name, std::int64_t size) const;         // zeros
  Value norm_weight(const std::string& name, std::int64_t size) const;  // ones; zeros for Gemma's 1 + w
};

/// RMSNorm over the last dimension, weight "NAME.weight".
Value norm(const BlockContext& b, const std::string& name, Value x);

/// x·Wᵀ (+ bias), weight "NAME.weight" [outputs, inputs of x].
Value project(const BlockContext& b, const std::string& name, Value x, std::int64_t outputs, bool has_bias = false);

/// h projected to heads: q [T, N, D], k, v [T, K, D]; by three projections, the way of most families.
struct Heads {
  Value q, k, v;
};
Heads project_heads(const BlockContext& b, Value h, bool has_bias);

/// Rotates q and k, and attends: [T, N*D].
Value attend(const BlockContext& b, Value q, Value k, Value v);
/// The output projection of attend() on project_heads().
Value self_attention(const BlockContext& b, Value h, bool has_bias);

/// down(act(gate(h)) * up(h))
Value gated_mlp(const BlockContext& b, Value h);

// Blocks of the families.
Value emit_llama_block(const BlockContext& b, Value x);
Value emit_qwen3_block(const BlockContext& b, Value x);
Value emit_gemma2_block(const BlockContext& b, Value x);
Value emit_gemma3_block(const BlockContext& b, Value x);
Value emit_phi3_block(const BlockContext& b, Value x);
Value emit_olmo2_block(const BlockContext& b, Value x);
Value emit_gpt2_block(const BlockContext& b, Value x);

/// Token embedding times the family's multiplier, and final norm with a (perhaps tied) head: all families but GPT-2.
Value emit_decoder_embedding(Emitter& e, const ModelConfig& c);
void emit_decoder_head(Emitter& e, const ModelConfig& c, Value x);
Value emit_gpt2_embedding(Emitter& e, const ModelConfig& c);
void emit_gpt2_head(Emitter& e, const ModelConfig& c, Value x);

}  // namespace heddle
