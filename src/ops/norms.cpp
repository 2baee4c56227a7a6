#include "ops/declarations.h"

// rms_norm:   y = x / sqrt(mean(x²) + eps) * (weight_offset + w)          (Zhang, Sennrich 2019, arXiv:1910.07467)
// layer_norm: y = (x - mean) / sqrt(var + eps) * w + b                    (Ba et al. 2016, arXiv:1607.06450)
// Over the last dimension. Saved: the statistics, f32 for each row. With a residual, s = x + residual is normed and
// kept. Backward: dx includes what was gathered; dw, db are added.
namespace heddle {
namespace {

constexpr std::int64_t kRowsPerPartialSum = 64;  // of the weights' gradients; fixed, so that threads do not matter

ValueType statistics(const ValueType& x) {
  Shape shape = x.shape.rank() == 2 ? Shape{x.shape[0]} : Shape{x.shape[0], x.shape[1]};
  return {DType::f32, shape, x.token_axis};
}

std::int64_t partial_sums(const ValueType& x) { return (x.shape.rows() + kRowsPerPartialSum - 1) / kRowsPerPartialSum; }

std::vector<ValueType> infer_rms(std::span<const ValueType> in, const Attributes&) {
  HEDDLE_CHECK(in[0].shape.back() == in[1].shape[0]);
  return {in[0], statistics(in[0]), in.size() > 2 && in[2].present() ? in[0] : detail::kAbsent};
}

std::vector<ValueType> infer_rms_backward(std::span<const ValueType> in, const Attributes&) {
  return {in[0], detail::kAbsent, detail::workspace({partial_sums(in[0]), in[0].shape.back()})};
}

void backward_rms(BackwardContext& c) {
  Attributes a{{"epsilon", c.attributes().real("epsilon")}, {"weight_offset", c.attributes().real("weight_offset")}};
  const std::vector<Value> in = {c.output_gradient(0), c.input(0), c.input(1), c.output(1), c.gradient(0)};
  c.set_gradient(0, c.emit("rms_norm_backward", in, a, {Value{}, c.weight_gradient(1)})[0]);
}

std::vector<ValueType> infer_layer(std::span<const ValueType> in, const Attributes&) {
  HEDDLE_CHECK(in[0].shape.back() == in[1].shape[0]);
  return {in[0], statistics(in[0]), statistics(in[0]), in.size() > 3 && in[3].present() ? in[0] : detail::kAbsent};
}

std::vector<ValueType> infer_layer_backward(std::span<const ValueType> in, const Attributes&) {
  return {in[0], detail::kAbsent, detail::kAbsent, detail::workspace({2 * partial_sums(in[0]), in[0].shape.back()})};
}

void backward_layer(BackwardContext& c) {
  const std::vector<Value> in = {c.output_gradient(0), c.input(0), c.input(1), c.output(1), c.output(2), c.gradient(0)};
  const std::vector<Value> given = {Value{}, c.weight_gradient(1), c.weight_gradient(2)};
  c.set_gradient(0, c.emit("layer_norm_backward", in, {}, given)[0]);
}

}  // namespace

std::vector<Operation> norm_operations() {
  return {{.name = "rms_norm",
           .inputs = 3,
           .outputs = 3,
           .infer = infer_rms,
           .flops = detail::flops_per_element<4>,
           .backward = backward_rms,
           .in_place = {{2, 2}, {2, 0}},
           .recomputed = Recomputed::always},
          {.name = "rms_norm_backward",
           .inputs = 5,
           .outputs = 3,
           .infer = infer_rms_backward,
           .flops = detail::flops_per_element<10>,
           .in_place = {{0, 4}, {0, 0}}},
          {.name = "layer_norm",
           .inputs = 4,
           .outputs = 4,
           .infer = infer_layer,
           .flops = detail::flops_per_element<7>,
           .backward = backward_layer,
           .in_place = {{3, 3}, {3, 0}},
           .recomputed = Recomputed::always},
          {.name = "layer_norm_backward",
           .inputs = 6,
           .outputs = 4,
           .infer = infer_layer_backward,
           .flops = detail::flops_per_element<14>,
           .in_place = {{0, 5}, {0, 0}}}};
}

}  // namespace heddle
