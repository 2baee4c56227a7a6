#include "ops/declarations.h"

// DoRA (Liu et al. 2024, arXiv:2402.09353), for a layer W [O,I] with an adapter A [r,I], B [O,r]:
// dora_norm:  norms[o] = |W[o,:] + scaling * B[o,:]·A|, f32 [O]; a constant in the backward (section 4.3). W may be
//             [I,O] (`transposed`) and of any storage type, A and B f32 or the activation type.
// dora_scale: y[t,o] = z[t,o] * m[o] / norms[o] + bias[o].
// Backward: dz = dy * m / norms; dm += sum over t of dy * z / norms; dbias += sum over t of dy.
namespace heddle {
namespace {

std::vector<ValueType> infer_norm(std::span<const ValueType> in, const Attributes&) {
  return {{DType::f32, {in[2].shape[0]}}};
}

double norm_flops(std::span<const ValueType> in, std::span<const ValueType>, const Attributes&) {
  return 2.0 * static_cast<double>(in[1].shape.elements()) * static_cast<double>(in[2].shape[0]);
}

std::vector<ValueType> infer_scale(std::span<const ValueType> in, const Attributes&) {
  HEDDLE_CHECK(in[0].shape.back() == in[1].shape[0] && in[1].shape == in[2].shape);
  return {in[0]};
}

std::vector<ValueType> infer_backward(std::span<const ValueType> in, const Attributes&) { return {in[0]}; }

void backward_scale(BackwardContext& c) {
  const std::vector<Value> in = {c.output_gradient(0), c.input(0), c.input(1), c.input(2)};
  const std::vector<Value> given = {Value{}, c.weight_gradient(1), c.weight_gradient(3)};
  c.set_gradient(0, c.emit("dora_scale_backward", in, {}, given)[0]);
}

}  // namespace

std::vector<Operation> dora_operations() {
  return {{.name = "dora_norm", .inputs = 3, .outputs = 1, .infer = infer_norm, .flops = norm_flops},
          {.name = "dora_scale",
           .inputs = 4,
           .outputs = 1,
           .infer = infer_scale,
           .flops = detail::flops_per_element<2>,
           .backward = backward_scale,
           .in_place = {{0, 0}},
           .recomputed = Recomputed::always},
          {.name = "dora_scale_backward",
           .inputs = 4,
           .outputs = 3,
           .infer = infer_backward,
           .flops = detail::flops_per_element<5>}};
}

}  // namespace heddle
