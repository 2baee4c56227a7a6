#include "ops/declarations.h"

// The final projection and the cross entropy in one (as Liger Kernel, arXiv:2410.10989): logits = x·Wᵀ for `chunk`
// tokens at a time, loss += sum over supervised tokens of logsumexp(logits) - logits[label]. The [T,V] matrix never
// exists. The gradient form makes loss, dx and dW in one pass over the chunks: 6*T*H*V FLOPs, instead of 8 with a
// forward first. Label smoothing (Szegedy et al. 2016, arXiv:1512.00567) and z-loss (PaLM, arXiv:2204.02311) are
// attributes: they need no more than each row's logits. An adapter of the head adds x2·W2ᵀ to the logits, x2 [T,r],
// W2 [V,r]; and with DoRA the sums are multiplied
// by m / norms [V]; or it has rows [n,H] of its own, which stand for those of W with their ids.
namespace heddle {
namespace {

std::vector<ValueType> infer(std::span<const ValueType> in, const Attributes& a) {
  return {detail::kAbsent, detail::logits_workspace(in, 6, a)};
}

std::vector<ValueType> infer_gradient(std::span<const ValueType> in, const Attributes& a) {
  // Where nothing trainable lies behind x, there is no dx.
  std::vector<ValueType> out = {detail::kAbsent, a.integer("needs_dx", 1) != 0 ? in[0] : detail::kAbsent,
                                detail::kAbsent, detail::logits_workspace(in, 6, a)};
  if (in.size() > 3) out.push_back(in[3]);
  return out;
}

template <int PerWeight>
double flops(std::span<const ValueType> in, std::span<const ValueType>, const Attributes&) {
  std::int64_t weights = in[1].shape.elements();
  if (in.size() > 4 && in[4].present()) weights += in[4].shape.elements();
  return PerWeight * static_cast<double>(in[0].shape[0]) * static_cast<double>(weights);
}

void backward(BackwardContext& c) {
  std::vector<Value> in = {c.input(0), c.input(1), c.input(2)}, given = {c.output(0), Value{}, c.weight_gradient(1)};
  Attributes attributes = c.attributes();
  attributes.set("needs_dx", std::int64_t{c.needs_gradient(0) ? 1 : 0});
  const bool has_branch = c.input(3).present(), has_rows = c.input(5).present();
  if (has_branch || has_rows) {
    in.insert(in.end(), {c.input(3), c.input(4), c.input(5), c.input(6), c.input(7)});
    given.resize(8);
    given[5] = c.weight_gradient(4);
    given[6] = c.weight_gradient(5);
    given[7] = c.weight_gradient(6);
  }
  const auto out = c.emit("linear_cross_entropy_gradient", in, attributes, given);
  if (c.needs_gradient(0)) c.set_gradient(0, out[1]);
  if (has_branch) c.set_gradient(3, out[4]);
}

}  // namespace

ValueType detail::logits_workspace(std::span<const ValueType> in, std::size_t magnitude, const Attributes& attributes) {
  const std::int64_t vocabulary = in[1].shape[attributes.integer("transposed") != 0 ? 1 : 0];
  auto replaced = static_cast<std::int64_t>(attributes.list("row_ids").size());
  if (replaced > 0 && in[0].dtype != DType::f32) replaced += in[0].shape.back();
  const bool has_magnitude = in.size() > magnitude && in[magnitude].present();
  return workspace({attributes.integer("chunk") * (has_magnitude ? 2 : 1), vocabulary + replaced});
}

std::vector<Operation> cross_entropy_operations() {
  return {
      {.name = "linear_cross_entropy",
       .inputs = 3,
       .outputs = 2,
       .infer = infer,
       .flops = flops<2>,
       .backward = backward,
       .backward_replaces_forward = true},
      {.name = "linear_cross_entropy_gradient", .inputs = 3, .outputs = 4, .infer = infer_gradient, .flops = flops<6>}};
}

}  // namespace heddle
