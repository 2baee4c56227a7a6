#include "models/decoder.h"

// As llama, with an RMSNorm on each head of q and k.            (Yang et al. 2025, arXiv:2505.09388)
namespace heddle {

Value emit_qwen3_block(const BlockContext& b, Value x) {
  const ModelConfig& c = b.c;
  const std::int64_t q_width = c.num_heads * c.head_dim, kv_width = c.num_kv_heads * c.head_dim;
  Value h = norm(b, "input_layernorm", x);  // [T, hidden]
  const Value q = b.e.split_heads(project(b, "self_attn.q_proj", h, q_width, c.attention_bias), c.num_heads);
  const Value k = b.e.split_heads(project(b, "self_attn.k_proj", h, kv_width, c.attention_bias), c.num_kv_heads);
  const Value v = b.e.split_heads(project(b, "self_attn.v_proj", h, kv_width, c.attention_bias), c.num_kv_heads);
  h = attend(b, norm(b, "self_attn.q_norm", q), norm(b, "self_attn.k_norm", k), v);
  x = b.e.add(x, project(b, "self_attn.o_proj", h, c.hidden_size, c.attention_bias));
  h = norm(b, "post_attention_layernorm", x);  // [T, hidden]
  return b.e.add(x, gated_mlp(b, h));
}

}  // namespace heddle
