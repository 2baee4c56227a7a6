#include "ops/declarations.h"

// add, scale, softcap (y = c*tanh(x/c), Gemma 2, arXiv:2408.00118), dropout (Srivastava et al. 2014), split, concat,
// select_last. Dropout saves no mask: it is drawn again from its place in the random stream.
namespace heddle {
namespace {

std::vector<ValueType> infer_same(std::span<const ValueType> in, const Attributes&) { return {in[0]}; }

void backward_add(BackwardContext& c) {
  for (int i = 0; i < 2; ++i) {
    if (c.needs_gradient(i)) c.add_gradient(i, c.output_gradient(0));
  }
}

void backward_scale(BackwardContext& c) {
  c.add_gradient(0, c.emit("scale", {c.output_gradient(0)}, c.attributes())[0]);
}

void backward_dropout(BackwardContext& c) {
  c.add_gradient(0, c.emit("dropout", {c.output_gradient(0)}, c.attributes())[0]);
}

std::vector<ValueType> infer_split(std::span<const ValueType> in, const Attributes& a) {
  std::vector<ValueType> out;
  for (const double width : a.list("widths")) {
    out.push_back({in[0].dtype, {in[0].shape[0], static_cast<std::int64_t>(width)}, in[0].token_axis});
  }
  return out;
}

std::vector<ValueType> infer_concat(std::span<const ValueType> in, const Attributes&) {
  std::int64_t width = 0;
  for (const auto& part : in) width += part.shape.elements() / part.shape[0];
  return {{in[0].dtype, {in[0].shape[0], width}, in[0].token_axis}};
}

void backward_split(BackwardContext& c) {
  std::vector<Value> parts;
  const auto count = c.attributes().list("widths").size();
  for (std::size_t i = 0; i < count; ++i) parts.push_back(c.output_gradient(static_cast<int>(i)));
  c.add_gradient(0, c.emit("concat", parts, {})[0]);
}

std::vector<ValueType> infer_last(std::span<const ValueType> in, const Attributes&) {
  return {{in[0].dtype, {1, in[0].shape[1]}, -1}};
}

}  // namespace

std::vector<Operation> elementwise_operations() {
  return {{.name = "add",
           .inputs = 2,
           .outputs = 1,
           .infer = infer_same,
           .flops = detail::flops_per_element<1>,
           .backward = backward_add,
           .in_place = {{0, 0}, {0, 1}}},
          {.name = "scale",
           .inputs = 1,
           .outputs = 1,
           .infer = infer_same,
           .flops = detail::flops_per_element<1>,
           .backward = backward_scale,
           .in_place = {{0, 0}}},
          {.name = "softcap",
           .inputs = 1,
           .outputs = 1,
           .infer = infer_same,
           .flops = detail::flops_per_element<12>,
           .in_place = {{0, 0}}},
          {.name = "dropout",
           .inputs = 1,
           .outputs = 1,
           .infer = infer_same,
           .flops = detail::flops_per_element<12>,
           .backward = backward_dropout,
           .in_place = {{0, 0}},
           .recomputed = Recomputed::always},
          {.name = "split",
           .inputs = 1,
           .outputs = 1,
           .infer = infer_split,
           .flops = detail::no_flops,
           .backward = backward_split},
          {.name = "concat", .inputs = 1, .outputs = 1, .infer = infer_concat, .flops = detail::no_flops},
          {.name = "select_last", .inputs = 1, .outputs = 1, .infer = infer_last, .flops = detail::no_flops}};
}

}  // namespace heddle
