#include <cmath>

#include "models/decoder.h"

// LayerNorm, learned positions, q, k, v in one projection, weights stored [in, out] (Conv1D).   (Radford et al. 2019)
namespace heddle {
namespace {

/// x·W + b, W [inputs, outputs].
Value conv1d(const BlockContext& b, const std::string& name, Value x, std::int64_t outputs, double standard_deviation) {
  const Value w = b.e.weight(b.prefix + name + ".weight", {b.e.type(x).shape.back(), outputs},
                             Initialization::normal(standard_deviation));
  return b.e.linear(x, w, b.bias(name + ".bias", outputs), true);
}

Value layer_norm(Emitter& e, const ModelConfig& c, const std::string& name, Value x) {
  const Value w = e.weight(name + ".weight", {c.hidden_size}, Initialization::ones());
  return e.layer_norm(x, w, e.weight(name + ".bias", {c.hidden_size}, Initialization::zeros()), c.norm_epsilon);
}

double residual_range(const ModelConfig& c) {
  return c.initializer_range / std::sqrt(2.0 * static_cast<double>(c.num_layers));
}

Value mlp(const BlockContext& b, Value h) {
  const ModelConfig& c = b.c;
  const MlpScope scope(b.e);
  h = conv1d(b, "mlp.c_fc", h, c.intermediate_size, c.initializer_range);  // [T, F]
  return conv1d(b, "mlp.c_proj", b.e.activation(h, c.activation), c.hidden_size, residual_range(c));
}

}  // namespace

Value emit_gpt2_embedding(Emitter& e, const ModelConfig& c) {
  const auto initialization = Initialization::normal(c.initializer_range);
  const Value tokens = e.weight("transformer.wte.weight", {c.vocab_size, c.hidden_size}, initialization);
  const Value places = e.weight("transformer.wpe.weight", {c.max_positions, c.hidden_size}, initialization);
  const Value x = e.add(e.embedding(e.input_ids(), tokens), e.embedding(e.positions(), places));  // [T, hidden]
  return e.dropout(x, c.embedding_dropout);
}

Value emit_gpt2_block(const BlockContext& b, Value x) {
  const ModelConfig& c = b.c;
  const std::int64_t hidden = c.hidden_size;
  Value h = layer_norm(b.e, c, b.prefix + "ln_1", x);  // [T, hidden]
  const auto parts = b.e.split(conv1d(b, "attn.c_attn", h, 3 * hidden, c.initializer_range), {hidden, hidden, hidden});
  h = attend(b, b.e.split_heads(parts[0], c.num_heads), b.e.split_heads(parts[1], c.num_heads),
             b.e.split_heads(parts[2], c.num_heads));
  h = conv1d(b, "attn.c_proj", h, hidden, residual_range(c));
  x = b.e.add(x, b.e.dropout(h, c.hidden_dropout));
  h = mlp(b, layer_norm(b.e, c, b.prefix + "ln_2", x));
  return b.e.add(x, b.e.dropout(h, c.hidden_dropout));
}

void emit_gpt2_head(Emitter& e, const ModelConfig& c, Value x) {
  const Value h = layer_norm(e, c, "transformer.ln_f", x);
  const auto initialization = Initialization::normal(c.initializer_range);
  const char* name = c.tie_word_embeddings ? "transformer.wte.weight" : "lm_head.weight";
  e.language_model_head(h, e.weight(name, {c.vocab_size, c.hidden_size}, initialization), {});
}

}  // namespace heddle
