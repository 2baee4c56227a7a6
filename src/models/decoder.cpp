#include "models/decoder.h"

#include <cmath>

namespace heddle {

Value BlockContext::weight(const std::string& name, Shape shape) const {
  return e.weight(prefix + name, shape, Initialization::normal(c.initializer_range));
}

Value BlockContext::bias(const std::string& name, std::int64_t size) const {
  return e.weight(prefix + name, {size}, Initialization::zeros());
}

Value BlockContext::norm_weight(const std::string& name, std::int64_t size) const {
  return e.weight(prefix + name, {size}, c.norm_offset != 0.0 ? Initialization::zeros() : Initialization::ones());
}

Value norm(const BlockContext& b, const std::string& name, Value x) {
  const std::int64_t width = b.e.type(x).shape.back();
  return b.e.rms_norm(x, b.norm_weight(name + ".weight", width), b.c.norm_epsilon, b.c.norm_offset);
}

Value project(const BlockContext& b, const std::string& name, Value x, std::int64_t outputs, bool has_bias) {
  const Value w = b.weight(name + ".weight", {outputs, b.e.type(x).shape.back()});
  return b.e.linear(x, w, has_bias ? b.bias(name + ".bias", outputs) : Value{});
}

Value attend(const BlockContext& b, Value q, Value k, Value v) {
  const ModelConfig& c = b.c;
  if (b.rope.cosine.present()) {
    q = b.e.emit("rope", {q, b.rope.cosine, b.rope.sine}, {})[0];
    k = b.e.emit("rope", {k, b.rope.cosine, b.rope.sine}, {})[0];
  }
  double scale = c.attention_scale;
  if (scale == 0.0) scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim));
  if (c.scale_attention_by_inverse_layer) scale /= static_cast<double>(b.layer + 1);
  Attributes a{{"scale", scale}};
  const auto layer = static_cast<std::size_t>(b.layer);
  if (c.sliding_window > 0 && (c.layer_is_sliding.empty() || c.layer_is_sliding[layer]))
    a.set("window", c.sliding_window);
  if (c.attention_softcap != 0.0) a.set("softcap", c.attention_softcap);
  if (c.attention_dropout != 0.0) {
    a.set("dropout", c.attention_dropout);
    a.set("dropout_stream", b.e.next_dropout_stream());
  }
  return b.e.merge_heads(b.e.attention(q, k, v, std::move(a)));  // [T, N*D]
}

Heads project_heads(const BlockContext& b, Value h, bool has_bias) {
  const ModelConfig& c = b.c;
  const std::int64_t q_width = c.num_heads * c.head_dim, kv_width = c.num_kv_heads * c.head_dim;
  return {b.e.split_heads(project(b, "self_attn.q_proj", h, q_width, has_bias), c.num_heads),
          b.e.split_heads(project(b, "self_attn.k_proj", h, kv_width, has_bias), c.num_kv_heads),
          b.e.split_heads(project(b, "self_attn.v_proj", h, kv_width, has_bias), c.num_kv_heads)};
}

Value self_attention(const BlockContext& b, Value h, bool has_bias) {
  const auto [q, k, v] = project_heads(b, h, has_bias);
  return project(b, "self_attn.o_proj", attend(b, q, k, v), b.c.hidden_size, b.c.attention_bias);
}

Value gated_mlp(const BlockContext& b, Value h) {
  const ModelConfig& c = b.c;
  const MlpScope mlp(b.e);
  const Value gate = project(b, "mlp.gate_proj", h, c.intermediate_size, c.mlp_bias);  // [T, F]
  const Value up = project(b, "mlp.up_proj", h, c.intermediate_size, c.mlp_bias);      // [T, F]
  return project(b, "mlp.down_proj", b.e.glu(gate, up, c.activation), c.hidden_size, c.mlp_bias);
}

namespace {

/// The multiplier in the activation type, as Gemma's own code rounds it.
double rounded(double factor, DType type) {
  const auto value = static_cast<float>(factor);
  if (type == DType::bf16) return static_cast<double>(static_cast<float>(BFloat16(value)));
  if (type == DType::f16) return static_cast<double>(static_cast<float>(Float16(value)));
  return factor;
}

}  // namespace

Value emit_decoder_embedding(Emitter& e, const ModelConfig& c) {
  const auto initialization = Initialization::normal(c.initializer_range);
  const Value table = e.weight("model.embed_tokens.weight", {c.vocab_size, c.hidden_size}, initialization);
  const Value x = e.embedding(e.input_ids(), table, c.pad_token_id.value_or(-1));  // [T, hidden]
  return e.dropout(e.scale(x, rounded(c.embedding_multiplier, e.type(x).dtype)), c.embedding_dropout);
}

void emit_decoder_head(Emitter& e, const ModelConfig& c, Value x) {
  const auto start = c.norm_offset != 0.0 ? Initialization::zeros() : Initialization::ones();
  const Value h = e.rms_norm(x, e.weight("model.norm.weight", {c.hidden_size}, start), c.norm_epsilon, c.norm_offset);
  const char* name = c.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight";
  const Value w = e.weight(name, {c.vocab_size, c.hidden_size}, Initialization::normal(c.initializer_range));
  Attributes a;
  if (c.final_softcap != 0.0) a.set("softcap", c.final_softcap);
  if (c.logits_scaling != 1.0) a.set("logit_scale", 1.0 / c.logits_scaling);
  e.language_model_head(h, w, std::move(a));
}

}  // namespace heddle
