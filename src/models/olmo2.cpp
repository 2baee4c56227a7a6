#include "models/decoder.h"

// Norms after attention and mlp instead of before, and over the whole of q and k.   (OLMo et al. 2024,
// arXiv:2501.00656)
namespace heddle {

Value emit_olmo2_block(const BlockContext& b, Value x) {
  const ModelConfig& c = b.c;
  const std::int64_t q_width = c.num_heads * c.head_dim, kv_width = c.num_kv_heads * c.head_dim;
  const Value q = norm(b, "self_attn.q_norm", project(b, "self_attn.q_proj", x, q_width, c.attention_bias));
  const Value k = norm(b, "self_attn.k_norm", project(b, "self_attn.k_proj", x, kv_width, c.attention_bias));
  const Value v = project(b, "self_attn.v_proj", x, kv_width, c.attention_bias);
  Value h = attend(b, b.e.split_heads(q, c.num_heads), b.e.split_heads(k, c.num_kv_heads),
                   b.e.split_heads(v, c.num_kv_heads));
  h = project(b, "self_attn.o_proj", h, c.hidden_size, c.attention_bias);
  x = b.e.add(x, norm(b, "post_attention_layernorm", h));
  return b.e.add(x, norm(b, "post_feedforward_layernorm", gated_mlp(b, x)));
}

}  // namespace heddle
