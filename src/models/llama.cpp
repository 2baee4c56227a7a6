#include "models/decoder.h"

// llama, mistral, qwen2 (bias on q, k, v), gemma (norms of 1 + w), granite (multipliers), smollm3 (layers without
// rope): x + attention(norm(x)), then x + mlp(norm(x)).                (Touvron et al. 2023, arXiv:2302.13971)
namespace heddle {

Value emit_llama_block(const BlockContext& b, Value x) {
  const ModelConfig& c = b.c;
  const bool has_bias = c.attention_bias || c.qkv_bias;
  Value h = norm(b, "input_layernorm", x);  // [T, hidden]
  h = self_attention(b, h, has_bias);       // [T, hidden]
  x = b.e.add(x, b.e.scale(h, c.residual_multiplier));
  h = norm(b, "post_attention_layernorm", x);  // [T, hidden]
  h = gated_mlp(b, h);                         // [T, hidden]
  return b.e.add(x, b.e.scale(h, c.residual_multiplier));
}

}  // namespace heddle
