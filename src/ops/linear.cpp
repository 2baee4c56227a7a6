#include "ops/declarations.h"

// y = x·Wᵀ + bias + residual, x [T,I], W [O,I] (or [I,O] and x·W where `transposed`, GPT-2's Conv1D), y [T,O].
// W may be quantized where it is read; it has no gradient then. linear_group: y_i = x·W_iᵀ + bias_i of one x; made by
// the pass group_linears(), it has no backward.
// Backward: dx = dy·W + what was gathered; dW += dyᵀ·x; dbias += sum over t of dy.
// Cost: 2*T*I*O FLOPs each.
namespace heddle {
namespace {

std::int64_t outputs_of(const ValueType& weight, const Attributes& a) {
  return weight.shape[a.integer("transposed") != 0 ? 1 : 0];
}
std::int64_t inputs_of(const ValueType& weight, const Attributes& a) {
  return weight.shape[a.integer("transposed") != 0 ? 0 : 1];
}

ValueType with_columns(const ValueType& like, std::int64_t columns) {
  return {like.dtype, {like.shape[0], columns}, like.token_axis};
}

std::vector<ValueType> infer(std::span<const ValueType> in, const Attributes& a) {
  HEDDLE_CHECK(in[0].shape.elements() / in[0].shape[0] == inputs_of(in[1], a));
  ValueType y = with_columns(in[0], outputs_of(in[1], a));
  if (a.integer("f32_output") != 0) y.dtype = DType::f32;
  return {y};
}

std::vector<ValueType> infer_group(std::span<const ValueType> in, const Attributes& a) {
  std::vector<ValueType> out;
  for (std::size_t i = 1; i < in.size(); i += 2) out.push_back(infer({{in[0], in[i]}}, a)[0]);
  return out;
}

std::vector<ValueType> infer_input(std::span<const ValueType> in, const Attributes& a) {
  return {with_columns(in[0], inputs_of(in[1], a))};
}

std::vector<ValueType> infer_weight(std::span<const ValueType>, const Attributes&) { return {}; }

double flops(std::span<const ValueType> in, std::span<const ValueType>, const Attributes&) {
  return 2.0 * static_cast<double>(in[0].shape[0]) * static_cast<double>(in[1].shape.elements());
}

double group_flops(std::span<const ValueType> in, std::span<const ValueType>, const Attributes&) {
  double sum = 0;
  for (std::size_t i = 1; i < in.size(); i += 2) sum += static_cast<double>(in[i].shape.elements());
  return 2.0 * static_cast<double>(in[0].shape[0]) * sum;
}

double weight_flops(std::span<const ValueType> in, std::span<const ValueType>, const Attributes&) {
  return 2.0 * static_cast<double>(in[0].shape.elements()) * static_cast<double>(in[1].shape.elements()) /
         static_cast<double>(in[1].shape[0]);
}

void backward(BackwardContext& c) {
  const Value dy = c.output_gradient(0);
  const Attributes transposed{{"transposed", c.attributes().integer("transposed")}};
  if (c.input(3).present() && c.needs_gradient(3)) c.add_gradient(3, dy);
  const Value dweight = c.weight_gradient(1), dbias = c.weight_gradient(2);
  // The weight's gradient first: it is the last to need x, whose memory dx can then take.
  if (dweight.present() || dbias.present()) {
    c.emit("linear_backward_weight", {dy, c.input(0)}, transposed, {dweight, dbias});
  }
  if (c.needs_gradient(0)) {
    c.set_gradient(0, c.emit("linear_backward_input", {dy, c.input(1), c.gradient(0)}, transposed)[0]);
  }
}

}  // namespace

std::vector<Operation> linear_operations() {
  return {{.name = "linear",
           .inputs = 4,
           .outputs = 1,
           .infer = infer,
           .flops = flops,
           .backward = backward,
           .in_place = {{0, 3}}},
          {.name = "linear_group", .inputs = 3, .outputs = 1, .infer = infer_group, .flops = group_flops},
          {.name = "linear_backward_input",
           .inputs = 3,
           .outputs = 1,
           .infer = infer_input,
           .flops = flops,
           .in_place = {{0, 2}}},
          {.name = "linear_backward_weight", .inputs = 2, .outputs = 2, .infer = infer_weight, .flops = weight_flops}};
}

}  // namespace heddle
