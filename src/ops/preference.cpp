#include "ops/declarations.h"

// Preference optimisation (DPO: Rafailov et al. 2023, arXiv:2305.18290). Documents come in pairs, the chosen answer
// before the rejected one. What a document's labels are worth is one number, the sum of their log-probabilities:
// linear_log_probs makes it without the [T,V] logits, a chunk of tokens at a time, and preference_loss turns the
// numbers of a pair into its loss. The loss's gradient is again one number for a document, which multiplies the
// gradients of its tokens: linear_log_probs_backward makes each chunk's logits a second time for that, 8*T*H*V FLOPs in
// all.
namespace heddle {
namespace {

// log_probs f64[documents], workspace
std::vector<ValueType> infer_log_probs(std::span<const ValueType> in, const Attributes& a) {
  return {{DType::f64, {in[3].shape[0] - 1}}, detail::logits_workspace(in, 7, a)};
}

// dx, dweight, workspace, and with an adapter of the head dx2, dweight2, drows, dmagnitude
std::vector<ValueType> infer_log_probs_backward(std::span<const ValueType> in, const Attributes& a) {
  std::vector<ValueType> out = {in[0], detail::kAbsent, detail::logits_workspace(in, 8, a)};
  if (in.size() > 5) out.push_back(in[5]);
  return out;
}

/// `Branch`: the input that is the weight of an adapter's branch, where there is one.
template <int PerWeight, std::size_t Branch>
double flops(std::span<const ValueType> in, std::span<const ValueType>, const Attributes&) {
  std::int64_t weights = in[1].shape.elements();
  if (in.size() > Branch && in[Branch].present()) weights += in[Branch].shape.elements();
  return PerWeight * static_cast<double>(in[0].shape[0]) * static_cast<double>(weights);
}

void log_probs_backward(BackwardContext& c) {
  std::vector<Value> in = {c.input(0), c.input(1), c.input(2), c.input(3), c.output_gradient(0)};
  std::vector<Value> given = {Value{}, c.weight_gradient(1)};
  const bool has_branch = c.input(4).present(), has_rows = c.input(6).present();
  if (has_branch || has_rows) {
    in.insert(in.end(), {c.input(4), c.input(5), c.input(6), c.input(7), c.input(8)});
    given.resize(7);
    given[4] = c.weight_gradient(5);
    given[5] = c.weight_gradient(6);
    given[6] = c.weight_gradient(7);
  }
  const auto out = c.emit("linear_log_probs_backward", in, c.attributes(), given);
  c.set_gradient(0, out[0]);
  if (has_branch) c.set_gradient(4, out[3]);
}

// loss and sums are the program's own buffers.
std::vector<ValueType> infer_loss(std::span<const ValueType>, const Attributes&) {
  return {detail::kAbsent, detail::kAbsent};
}
std::vector<ValueType> infer_loss_gradient(std::span<const ValueType> in, const Attributes&) {
  return {detail::kAbsent, detail::kAbsent, in[0]};
}

void loss_backward(BackwardContext& c) {
  const std::vector<Value> in = {c.input(0), c.input(1), c.input(2), c.input(3)};
  const auto out = c.emit("preference_loss_gradient", in, c.attributes(), {c.output(0), c.output(1)});
  c.set_gradient(0, out[2]);
}

}  // namespace

std::vector<Operation> preference_operations() {
  return {{.name = "linear_log_probs",
           .inputs = 4,
           .outputs = 2,
           .infer = infer_log_probs,
           .flops = flops<2, 5>,
           .backward = log_probs_backward},
          {.name = "linear_log_probs_backward",
           .inputs = 5,
           .outputs = 3,
           .infer = infer_log_probs_backward,
           .flops = flops<6, 6>},
          {.name = "preference_loss",
           .inputs = 4,
           .outputs = 2,
           .infer = infer_loss,
           .flops = detail::no_flops,
           .backward = loss_backward,
           .backward_replaces_forward = true},
          {.name = "preference_loss_gradient",
           .inputs = 4,
           .outputs = 3,
           .infer = infer_loss_gradient,
           .flops = detail::no_flops}};
}

}  // namespace heddle
