#include "ops/declarations.h"

// o = softmax(scale * q·kᵀ, causal, by document) · v, q [T,N,D], k, v [T,K,D], o [T,N,D]; tiled, with online softmax
// (Dao et al. 2022, arXiv:2205.14135; 2023, arXiv:2307.08691). Saved: o and lse f32[N,T]. The backward computes the
// probabilities again from q, k and lse; it overwrites dq, dk, dv.
// kv_append: generation's cache of keys and values.
namespace heddle {
namespace {

std::vector<ValueType> infer(std::span<const ValueType> in, const Attributes&) {
  const auto& q = in[0];
  HEDDLE_CHECK(q.shape.rank() == 3 && q.shape[1] % in[1].shape[1] == 0 && q.shape[2] == in[1].shape[2]);
  return {q, {DType::f32, {q.shape[1], q.shape[0]}, q.token_axis == 0 ? 1 : -1}};
}

// Upper bound: one document over the whole stream, half of the square.
double flops(std::span<const ValueType> in, std::span<const ValueType>, const Attributes& a) {
  const auto tokens = static_cast<double>(in[0].shape[0]);
  const auto window = static_cast<double>(a.integer("window"));
  const double keys = window > 0 && window < tokens / 2 ? window : tokens / 2;
  return 4.0 * tokens * keys * static_cast<double>(in[0].shape[1] * in[0].shape[2]);
}
double backward_flops(std::span<const ValueType> in, std::span<const ValueType> out, const Attributes& a) {
  return 2.5 * flops(in, out, a);
}

std::vector<ValueType> infer_backward(std::span<const ValueType> in, const Attributes&) {
  // in: do, q, k, v, o, lse, document_starts
  const auto& q = in[1];
  ValueType row_sums{DType::f32, {q.shape[1], q.shape[0]}, 1, true};
  ValueType dq_sum{DType::f32, q.shape, 0, true};
  return {q, in[2], in[3], row_sums, q.dtype == DType::f32 ? detail::kAbsent : dq_sum};
}

void backward(BackwardContext& c) {
  const auto out = c.emit(
      "attention_backward",
      {c.output_gradient(0), c.input(0), c.input(1), c.input(2), c.output(0), c.output(1), c.input(3)}, c.attributes());
  for (int i = 0; i < 3; ++i) c.add_gradient(i, out[static_cast<std::size_t>(i)]);
}

std::vector<ValueType> infer_append(std::span<const ValueType>, const Attributes&) { return {}; }

}  // namespace

std::vector<Operation> attention_operations() {
  return {{.name = "attention",
           .inputs = 4,
           .outputs = 2,
           .infer = infer,
           .flops = flops,
           .backward = backward,
           .recomputed = Recomputed::selective},
          {.name = "attention_backward", .inputs = 7, .outputs = 5, .infer = infer_backward, .flops = backward_flops},
          {.name = "kv_append", .inputs = 1, .outputs = 1, .infer = infer_append, .flops = detail::no_flops}};
}

}  // namespace heddle
