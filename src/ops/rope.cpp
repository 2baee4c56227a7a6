#include "ops/declarations.h"

// Rotary position embedding (Su et al. 2021, arXiv:2104.09864), pairs (j, j + R/2) as in Hugging Face.
// rope_table: angle[t,j] = position[t] * inv_freq[j]; cos and sin, f32. The backward rotates by the negative angle.
namespace heddle {
namespace {

std::vector<ValueType> infer_table(std::span<const ValueType> in, const Attributes& a) {
  const ValueType half{DType::f32, {in[0].shape[0], static_cast<std::int64_t>(a.list("inv_freq").size())}, 0};
  return {half, half};
}

double table_flops(std::span<const ValueType> in, std::span<const ValueType> out, const Attributes&) {
  return 40.0 * static_cast<double>(in[0].shape[0] * out[0].shape[1]);
}

std::vector<ValueType> infer(std::span<const ValueType> in, const Attributes&) { return {in[0]}; }

void backward(BackwardContext& c) {
  c.add_gradient(0, c.emit("rope_backward", {c.output_gradient(0), c.input(1), c.input(2)}, {})[0]);
}

}  // namespace

std::vector<Operation> rope_operations() {
  return {{.name = "rope_table", .inputs = 2, .outputs = 2, .infer = infer_table, .flops = table_flops},
          {.name = "rope",
           .inputs = 3,
           .outputs = 1,
           .infer = infer,
           .flops = detail::flops_per_element<3>,
           .backward = backward,
           .in_place = {{0, 0}},
           .recomputed = Recomputed::always},
          {.name = "rope_backward",
           .inputs = 3,
           .outputs = 1,
           .infer = infer,
           .flops = detail::flops_per_element<3>,
           .in_place = {{0, 0}}}};
}

}  // namespace heddle
