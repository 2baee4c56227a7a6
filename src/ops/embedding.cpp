#include "ops/declarations.h"

// y[t,:] = weight[ids[t],:]        backward: dweight[ids[t],:] += dy[t,:], in the order of t
namespace heddle {
namespace {

std::vector<ValueType> infer(std::span<const ValueType> in, const Attributes&) {
  return {{in[1].dtype, {in[0].shape[0], in[1].shape[1]}, 0}};
}

void backward(BackwardContext& c) {
  const Value gradient = c.weight_gradient(1);
  if (gradient.present()) c.emit("embedding_backward", {c.input(0), c.output_gradient(0)}, {}, {gradient});
}

std::vector<ValueType> infer_backward(std::span<const ValueType>, const Attributes&) { return {}; }

}  // namespace

std::vector<Operation> embedding_operations() {
  return {
      {.name = "embedding", .inputs = 2, .outputs = 1, .infer = infer, .flops = detail::no_flops, .backward = backward},
      {.name = "embedding_backward", .inputs = 2, .outputs = 1, .infer = infer_backward, .flops = detail::no_flops}};
}

}  // namespace heddle
