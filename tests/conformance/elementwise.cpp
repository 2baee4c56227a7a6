#include "operation.h"

namespace heddle::conformance {
namespace {

/// Operands of one shape; softcap and scale take one, add two.
Case same_shape_case(Precision p, Shape shape, std::size_t inputs, Attributes attributes) {
  Case c{.name = shape.text(),
         .in = {},
         .out = {output(p.activation, shape)},
         .attributes = std::move(attributes),
         .scalars = {.tokens = shape[0]}};
  for (std::size_t i = 0; i < inputs; ++i) c.in.push_back(random(p.activation, shape, i + 1, 20.0));
  return c;
}

Outputs add_reference(const Case& c) {
  return {elements(c.in[0].shape.elements(), [&](std::int64_t i) { return Real(c.in[0][i]) + c.in[1][i]; })};
}

Outputs scale_reference(const Case& c) {
  const Real factor = stored(DType::f32, c.attributes.real("factor"));
  return {elements(c.in[0].shape.elements(), [&](std::int64_t i) { return factor * c.in[0][i]; })};
}

Outputs softcap_reference(const Case& c) {
  const Real cap = stored(DType::f32, c.attributes.real("cap"));
  return {elements(c.in[0].shape.elements(), [&](std::int64_t i) { return cap * tanh(c.in[0][i] / cap); })};
}

/// Column `column` of the matrices side by side.
Outputs concat_reference(const Case& c) {
  const std::int64_t width = c.out[0].shape[1];
  return {elements(c.out[0].shape.elements(), [&](std::int64_t i) {
    std::int64_t row = i / width, column = i % width;
    for (const Operand& x : c.in) {
      if (column < x.shape[1]) return Real(x[row * x.shape[1] + column]);
      column -= x.shape[1];
    }
    return Real();
  })};
}

Outputs split_reference(const Case& c) {
  const std::int64_t total = c.in[0].shape[1];
  Outputs outputs;
  std::int64_t start = 0;
  for (const Operand& y : c.out) {
    const std::int64_t width = y.shape[1];
    outputs.push_back(elements(y.shape.elements(),
                               [&](std::int64_t i) { return Real(c.in[0][i / width * total + start + i % width]); }));
    start += width;
  }
  return outputs;
}

/// One matrix [rows, sum of widths] and its parts; `parts_are_inputs` for concat.
Case parts_case(Precision p, std::int64_t rows, std::initializer_list<std::int64_t> widths, bool parts_are_inputs) {
  Case c{.name = fmt::format("{} rows, {} parts", rows, widths.size()),
         .in = {},
         .out = {},
         .attributes = {},
         .scalars = {.tokens = rows}};
  std::int64_t total = 0;
  for (const std::int64_t width : widths) {
    total += width;
    if (parts_are_inputs) {
      c.in.push_back(random(p.activation, {rows, width}, static_cast<std::uint64_t>(total)));
    } else {
      c.out.push_back(output(p.activation, {rows, width}));
    }
  }
  if (parts_are_inputs) {
    c.out.push_back(output(p.activation, {rows, total}));
  } else {
    c.in.push_back(random(p.activation, {rows, total}, 1));
  }
  return c;
}

Outputs select_last_reference(const Case& c) {
  const std::int64_t width = c.in[0].shape[1], last = c.in[0].shape[0] - 1;
  return {elements(width, [&](std::int64_t i) { return Real(c.in[0][last * width + i]); })};
}

Case select_last_case(Precision p, std::int64_t rows, std::int64_t width) {
  return {.name = fmt::format("[{}, {}]", rows, width),
          .in = {random(p.activation, {rows, width}, 1)},
          .out = {output(p.activation, {1, width})},
          .attributes = {},
          .scalars = {.tokens = rows}};
}

}  // namespace

std::vector<Operation> elementwise_operations() {
  return {
      {.name = "add",
       .cases = [](Precision p) -> std::vector<Case> {
         return {same_shape_case(p, {1, 1}, 2, {}), same_shape_case(p, {13, 37}, 2, {}),
                 same_shape_case(p, {129, 300}, 2, {})};
       },
       .reference = add_reference,
       .aliases = {{{.output = 0, .input = 0}}, {{.output = 0, .input = 1}}},
       .large =
           [](Precision p) {
             return same_shape_case(p, {8192, 2048}, 2, {});
           }},
      {.name = "scale",
       .cases = [](Precision p) -> std::vector<Case> {
         return {same_shape_case(p, {13, 37}, 1, {{"factor", 0.3}}),
                 same_shape_case(p, {129, 300}, 1, {{"factor", 45.25}})};
       },
       .reference = scale_reference,
       .aliases = {{{.output = 0, .input = 0}}},
       .large =
           [](Precision p) {
             return same_shape_case(p, {8192, 2048}, 1, {{"factor", 0.3}});
           }},
      {.name = "softcap",
       .cases = [](Precision p) -> std::vector<Case> {
         return {same_shape_case(p, {13, 37}, 1, {{"cap", 30.0}}), same_shape_case(p, {129, 300}, 1, {{"cap", 1.7}})};
       },
       .reference = softcap_reference,
       .aliases = {{{.output = 0, .input = 0}}},
       .large =
           [](Precision p) {
             return same_shape_case(p, {8192, 2048}, 1, {{"cap", 30.0}});
           }},
      {.name = "split",
       .cases = [](Precision p) -> std::vector<Case> {
         return {parts_case(p, 1, {1}, false), parts_case(p, 130, {33, 1, 7}, false),
                 parts_case(p, 17, {1000, 24}, false)};
       },
       .reference = split_reference,
       .large =
           [](Precision p) {
             return parts_case(p, 8192, {2048, 512, 512}, false);
           }},
      {.name = "concat",
       .cases = [](Precision p) -> std::vector<Case> {
         return {parts_case(p, 1, {1}, true), parts_case(p, 130, {33, 1, 7}, true),
                 parts_case(p, 17, {1000, 24}, true)};
       },
       .reference = concat_reference,
       .large =
           [](Precision p) {
             return parts_case(p, 8192, {2048, 512, 512}, true);
           }},
      {.name = "select_last",
       .cases = [](Precision p) -> std::vector<Case> {
         return {select_last_case(p, 1, 1), select_last_case(p, 9, 33)};
       },
       .reference = select_last_reference},
  };
}

}  // namespace heddle::conformance
