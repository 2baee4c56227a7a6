#include "models/decoder.h"

// Gemma 2 (arXiv:2408.00118): norms before and after attention and mlp. Gemma 3 (arXiv:2503.19786): and on the heads of
// q and k; local layers have a rope of their own.
namespace heddle {
namespace {

Value add_mlp(const BlockContext& b, Value x) {
  const Value h = gated_mlp(b, norm(b, "pre_feedforward_layernorm", x));
  return b.e.add(x, norm(b, "post_feedforward_layernorm", h));
}

}  // namespace

Value emit_gemma2_block(const BlockContext& b, Value x) {
  const Value h = self_attention(b, norm(b, "input_layernorm", x), b.c.attention_bias);
  return add_mlp(b, b.e.add(x, norm(b, "post_attention_layernorm", h)));
}

Value emit_gemma3_block(const BlockContext& b, Value x) {
  const ModelConfig& c = b.c;
  Value h = norm(b, "input_layernorm", x);  // [T, hidden]
  const auto [q, k, v] = project_heads(b, h, c.attention_bias);
  h = attend(b, norm(b, "self_attn.q_norm", q), norm(b, "self_attn.k_norm", k), v);
  h = project(b, "self_attn.o_proj", h, c.hidden_size, c.attention_bias);
  return add_mlp(b, b.e.add(x, norm(b, "post_attention_layernorm", h)));
}

}  // namespace heddle
