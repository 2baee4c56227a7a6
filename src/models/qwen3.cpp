#include "models/decoder.h"

// As llama, with an RMSNorm on each head of q and k.            (Yang et al. 2025, arXiv:2505.09388)
namespace heddle {

Value emit_qwen3_block(const BlockContext& b, Value x) {
  const ModelConfig& c = b.c;
  Value h = norm(b, "input_layernorm", x);  // [T, hidden]
  const auto [q, k, v] = project_heads(b, h, c.attention_bias);
  h = attend(b, norm(b, "self_attn.q_norm", q), norm(b, "self_attn.k_norm", k), v);
  x = b.e.add(x, project(b, "self_attn.o_proj", h, c.hidden_size, c.attention_bias));
  h = norm(b, "post_attention_layernorm", x);  // [T, hidden]
  return b.e.add(x, gated_mlp(b, h));
}

}  // namespace heddle
