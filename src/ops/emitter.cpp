#include "ops/emitter.h"

namespace heddle {

Value Emitter::linear(Value x, Value weight, Value bias, bool transposed) {
  return emit("linear", {x, weight, bias}, {{"transposed", std::int64_t{transposed}}})[0];
}

Value Emitter::rms_norm(Value x, Value weight, double epsilon, double weight_offset) {
  return emit("rms_norm", {x, weight}, {{"epsilon", epsilon}, {"weight_offset", weight_offset}})[0];
}

Value Emitter::layer_norm(Value x, Value weight, Value bias, double epsilon) {
  return emit("layer_norm", {x, weight, bias}, {{"epsilon", epsilon}})[0];
}

Value Emitter::embedding(Value ids, Value weight, std::int64_t padding_id) {
  return emit("embedding", {ids, weight}, {{"padding_id", padding_id}})[0];
}

Value Emitter::add(Value a, Value b) { return emit("add", {a, b}, {})[0]; }

Value Emitter::scale(Value x, double factor) { return factor == 1.0 ? x : emit("scale", {x}, {{"factor", factor}})[0]; }

Value Emitter::activation(Value x, Activation kind) {
  return emit("activation", {x}, {{"activation", static_cast<std::int64_t>(kind)}})[0];
}

Value Emitter::glu(Value gate, Value up, Activation kind) {
  return emit("glu", {gate, up}, {{"activation", static_cast<std::int64_t>(kind)}})[0];
}

Value Emitter::dropout(Value x, double probability) {
  if (probability == 0.0) return x;
  return emit("dropout", {x}, {{"p", probability}, {"stream", next_dropout_stream()}})[0];
}

Value Emitter::split_heads(Value x, std::int64_t heads) {
  const Shape& shape = type(x).shape;
  return reshape(x, {shape[0], heads, shape[1] / heads});
}

Value Emitter::merge_heads(Value x) {
  const Shape& shape = type(x).shape;
  return reshape(x, {shape[0], shape[1] * shape[2]});
}

std::vector<Value> Emitter::split(Value x, const std::vector<std::int64_t>& widths) {
  return emit("split", {x}, {{"widths", std::vector<double>(widths.begin(), widths.end())}});
}

}  // namespace heddle
