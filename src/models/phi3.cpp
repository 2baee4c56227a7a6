#include "models/decoder.h"

// As llama, with q, k, v in one projection and gate and up in another.   (Abdin et al. 2024, arXiv:2404.14219)
namespace heddle {
namespace {

Value mlp(const BlockContext& b, Value h) {
  const std::int64_t width = b.c.intermediate_size;
  const MlpScope scope(b.e);
  const auto halves = b.e.split(project(b, "mlp.gate_up_proj", h, 2 * width), {width, width});
  return project(b, "mlp.down_proj", b.e.glu(halves[0], halves[1], b.c.activation), b.c.hidden_size);
}

}  // namespace

Value emit_phi3_block(const BlockContext& b, Value x) {
  const ModelConfig& c = b.c;
  const std::int64_t q_width = c.num_heads * c.head_dim, kv_width = c.num_kv_heads * c.head_dim;
  const Value qkv = project(b, "self_attn.qkv_proj", norm(b, "input_layernorm", x), q_width + 2 * kv_width);
  const auto parts = b.e.split(qkv, {q_width, kv_width, kv_width});
  Value h = attend(b, b.e.split_heads(parts[0], c.num_heads), b.e.split_heads(parts[1], c.num_kv_heads),
                   b.e.split_heads(parts[2], c.num_kv_heads));
  h = project(b, "self_attn.o_proj", h, c.hidden_size);
  x = b.e.add(x, b.e.dropout(h, c.hidden_dropout));
  h = mlp(b, norm(b, "post_attention_layernorm", x));
  return b.e.add(x, b.e.dropout(h, c.hidden_dropout));
}

}  // namespace heddle
