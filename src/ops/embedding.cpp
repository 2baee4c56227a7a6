#include "ops/declarations.h"

// y[t,:] = weight[ids[t],:]        backward: dweight[ids[t],:] += dy[t,:], in the order of t, but for padding_id
// transposed: y[t,:] = weight[:,ids[t]], as an adapter of an embedding has it
// With rows [n,H] beside a frozen weight: y[t,:] = rows[place,:] of ids that row_ids names; their gradients go there.
// replace_columns: logits[row_ids[i]] = values[row_places[i]]
// neftune: y[t,:] = x[t,:] + uniform noise (Jain et al. 2023, arXiv:2310.05914); its gradient passes through
namespace heddle {
namespace {

std::vector<ValueType> infer(std::span<const ValueType> in, const Attributes& a) {
  DType type = in[1].dtype;
  if (is_quantized(type)) type = static_cast<DType>(a.integer("dtype", static_cast<std::int64_t>(DType::f32)));
  const bool is_transposed = a.integer("transposed") != 0;
  return {{type, {in[0].shape[0], in[1].shape[is_transposed ? 0 : 1]}, 0}};
}

void backward(BackwardContext& c) {
  const Value gradient = c.weight_gradient(1), of_rows = c.weight_gradient(2);
  HEDDLE_CHECK(!gradient.present() || !of_rows.present());
  Attributes attributes{{"padding_id", c.attributes().integer("padding_id", -1)},
                        {"transposed", c.attributes().integer("transposed")}};
  if (of_rows.present()) {
    for (const char* name : {"row_ids", "row_places"}) {
      const auto list = c.attributes().list(name);
      attributes.set(name, std::vector<double>(list.begin(), list.end()));
    }
  }
  if (gradient.present() || of_rows.present()) {
    c.emit("embedding_backward", {c.input(0), c.output_gradient(0)}, attributes,
           {gradient.present() ? gradient : of_rows});
  }
}

std::vector<ValueType> infer_backward(std::span<const ValueType>, const Attributes&) { return {}; }

// Written into a buffer that is there.
std::vector<ValueType> infer_columns(std::span<const ValueType>, const Attributes&) { return {detail::kAbsent}; }

std::vector<ValueType> infer_noise(std::span<const ValueType> in, const Attributes&) { return {in[0]}; }

void backward_noise(BackwardContext& c) { c.add_gradient(0, c.output_gradient(0)); }

}  // namespace

std::vector<Operation> embedding_operations() {
  return {
      {.name = "embedding", .inputs = 2, .outputs = 1, .infer = infer, .flops = detail::no_flops, .backward = backward},
      {.name = "embedding_backward", .inputs = 2, .outputs = 1, .infer = infer_backward, .flops = detail::no_flops},
      {.name = "replace_columns", .inputs = 1, .outputs = 1, .infer = infer_columns, .flops = detail::no_flops},
      {.name = "neftune",
       .inputs = 2,
       .outputs = 1,
       .infer = infer_noise,
       .flops = detail::flops_per_element<3>,
       .backward = backward_noise,
       .in_place = {{0, 0}}}};
}

}  // namespace heddle
