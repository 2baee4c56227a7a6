#include "ops/declarations.h"

// activation: y = act(x); act is silu x*sigmoid(x) (Elfwing et al. 2017, arXiv:1702.03118), gelu x*Phi(x) (Hendrycks,
//   Gimpel 2016, arXiv:1606.08415), its tanh form, or relu.
// glu: y = act(gate) * up (Shazeer 2020, arXiv:2002.05202); SwiGLU with silu, GeGLU with gelu.
// The backward needs the inputs, not y.
namespace heddle {
namespace {

std::vector<ValueType> infer_same(std::span<const ValueType> in, const Attributes&) { return {in[0]}; }
std::vector<ValueType> infer_glu_backward(std::span<const ValueType> in, const Attributes&) { return {in[0], in[0]}; }

void backward_activation(BackwardContext& c) {
  c.add_gradient(0, c.emit("activation_backward", {c.output_gradient(0), c.input(0)}, c.attributes())[0]);
}

void backward_glu(BackwardContext& c) {
  const auto out = c.emit("glu_backward", {c.output_gradient(0), c.input(0), c.input(1)}, c.attributes());
  c.add_gradient(0, out[0]);
  c.add_gradient(1, out[1]);
}

}  // namespace

std::vector<Operation> activation_operations() {
  return {{.name = "activation",
           .inputs = 1,
           .outputs = 1,
           .infer = infer_same,
           .flops = detail::flops_per_element<12>,
           .backward = backward_activation,
           .in_place = {{0, 0}},
           .recomputed = Recomputed::always},
          {.name = "activation_backward",
           .inputs = 2,
           .outputs = 1,
           .infer = infer_same,
           .flops = detail::flops_per_element<16>,
           .in_place = {{0, 0}, {0, 1}}},
          {.name = "glu",
           .inputs = 2,
           .outputs = 1,
           .infer = infer_same,
           .flops = detail::flops_per_element<13>,
           .backward = backward_glu,
           .in_place = {{0, 0}, {0, 1}},
           .recomputed = Recomputed::always},
          {.name = "glu_backward",
           .inputs = 3,
           .outputs = 2,
           .infer = infer_glu_backward,
           .flops = detail::flops_per_element<18>,
           .in_place = {{0, 1}, {1, 2}, {0, 0}}}};
}

}  // namespace heddle
