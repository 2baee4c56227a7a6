#include <fmt/ranges.h>

#include "operation.h"

namespace heddle::conformance {
namespace {

bool is_transposed(const Case& c) { return c.attributes.integer("transposed") != 0; }

/// weight[o, i] of a weight [O, I], or [I, O] where the attribute says so. Beside activations in bf16 a quantized one
/// is rounded to that.
double weight_at(const Case& c, const Operand& weight, std::int64_t o, std::int64_t i) {
  const double value = is_transposed(c) ? weight[i * weight.shape[1] + o] : weight[o * weight.shape[1] + i];
  return c.in[0].dtype == DType::bf16 ? round_to(DType::bf16, value) : value;
}

Outputs linear_reference(const Case& c) {
  const Operand &x = c.in[0], &weight = c.in[1], &bias = c.in[2], &residual = c.in[3];
  const std::int64_t inputs = x.shape[1], outputs = c.out[0].shape[1];
  return {elements(c.out[0].shape.elements(), [&](std::int64_t at) {
    const std::int64_t t = at / outputs, o = at % outputs;
    Real y = sum(inputs, [&](std::int64_t i) { return Real(x[t * inputs + i]) * weight_at(c, weight, o, i); });
    if (bias.present) y = y + bias[o];
    if (residual.present) y = y + residual[at];
    return y;
  })};
}

Outputs linear_group_reference(const Case& c) {
  Outputs outputs;
  for (std::size_t i = 0; i < c.out.size(); ++i) {
    const Case alone{.name = "",
                     .in = {c.in[0], c.in[1 + 2 * i], c.in[2 + 2 * i], absent()},
                     .out = {c.out[i]},
                     .attributes = {},
                     .scalars = c.scalars};
    outputs.push_back(linear_reference(alone)[0]);
  }
  return outputs;
}

Outputs linear_backward_input_reference(const Case& c) {
  const Operand &dy = c.in[0], &weight = c.in[1], &addend = c.in[2];
  const std::int64_t inputs = c.out[0].shape[1], outputs = dy.shape[1];
  return {elements(c.out[0].shape.elements(), [&](std::int64_t at) {
    const std::int64_t t = at / inputs, i = at % inputs;
    const Real dx =
        sum(outputs, [&](std::int64_t o) { return Real(dy[t * outputs + o]) * weight_at(c, weight, o, i); });
    return addend.present ? dx + addend[at] : dx;
  })};
}

Outputs linear_backward_weight_reference(const Case& c) {
  const Operand &dy = c.in[0], &x = c.in[1];
  const std::int64_t tokens = x.shape[0], inputs = x.shape[1], outputs = dy.shape[1];
  const auto dweight = elements(inputs * outputs, [&](std::int64_t at) {
    const std::int64_t o = is_transposed(c) ? at % outputs : at / inputs;
    const std::int64_t i = is_transposed(c) ? at / outputs : at % inputs;
    return initial(c, 0, at) +
           sum(tokens, [&](std::int64_t t) { return Real(dy[t * outputs + o]) * x[t * inputs + i]; });
  });
  const auto dbias = elements(c.out[1].present ? outputs : 0, [&](std::int64_t o) {
    return initial(c, 1, o) + sum(tokens, [&](std::int64_t t) { return Real(dy[t * outputs + o]); });
  });
  return {dweight, dbias};
}

struct Extents {
  std::int64_t tokens, inputs, outputs;
  Shape weight(bool transposed) const { return transposed ? Shape{inputs, outputs} : Shape{outputs, inputs}; }
  std::string text() const { return fmt::format("T {} I {} O {}", tokens, inputs, outputs); }
};

Case linear_case(Precision p, Extents e, bool transposed, bool has_bias, bool has_residual) {
  const DType a = p.activation;
  const Shape y{e.tokens, e.outputs};
  return {.name = fmt::format("{} transposed {} bias {} residual {}", e.text(), transposed, has_bias, has_residual),
          .in = {random(a, {e.tokens, e.inputs}, 1), random(a, e.weight(transposed), 2),
                 has_bias ? random(a, {e.outputs}, 3) : absent(a), has_residual ? random(a, y, 4) : absent(a)},
          .out = {output(a, y)},
          .attributes = {{"transposed", std::int64_t{transposed}}},
          .scalars = {.tokens = e.tokens}};
}

/// Products of x with as many rows of a weight each, the first with a bias.
Case linear_group_case(Precision p, std::int64_t tokens, std::int64_t inputs,
                       const std::vector<std::int64_t>& outputs) {
  const DType a = p.activation;
  Case c{.name = fmt::format("T {} I {} O {}", tokens, inputs, fmt::join(outputs, ", ")),
         .in = {random(a, {tokens, inputs}, 1)},
         .out = {},
         .attributes = {},
         .scalars = {.tokens = tokens}};
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    c.in.push_back(random(a, {outputs[i], inputs}, 2 + i));
    c.in.push_back(i == 0 ? random(a, {outputs[i]}, 10) : absent(a));
    c.out.push_back(output(a, {tokens, outputs[i]}));
  }
  return c;
}

std::vector<Case> linear_group_cases(Precision p) {
  std::vector<Case> cases = {linear_group_case(p, 1, 300, {97, 33, 1}), linear_group_case(p, 7, 37, {29, 64}),
                             linear_group_case(p, 1, 1, {1})};
  for (const DType type : kQuantized) {
    for (const bool all : {false, true}) {
      Case c = linear_group_case(p, 1, 64, {37, 70});
      c.name += fmt::format(" weight{} {}", all ? "s" : "", torch_name(type));
      c.in[1] = random_quantized(type, c.in[1].shape, 2);
      if (all) c.in[3] = random_quantized(type, c.in[3].shape, 3);
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

Case linear_backward_input_case(Precision p, Extents e, bool transposed, bool has_addend) {
  const DType a = p.activation;
  const Shape x{e.tokens, e.inputs};
  return {.name = fmt::format("{} transposed {} addend {}", e.text(), transposed, has_addend),
          .in = {random(a, {e.tokens, e.outputs}, 1), random(a, e.weight(transposed), 2),
                 has_addend ? random(a, x, 3) : absent(a)},
          .out = {output(a, x)},
          .attributes = {{"transposed", std::int64_t{transposed}}},
          .scalars = {.tokens = e.tokens},
          .unseen = {random(a, x, 4)}};
}

Case linear_backward_weight_case(Precision p, Extents e, bool transposed, bool has_bias, Accumulate mode, bool first) {
  const DType a = p.activation;
  return {.name = fmt::format("{} transposed {} bias {} accumulate {}", e.text(), transposed, has_bias,
                              static_cast<int>(mode)),
          .in = {random(a, {e.tokens, e.outputs}, 1), random(a, {e.tokens, e.inputs}, 2)},
          .out = {gradient_output(p, e.weight(transposed), mode, first, 3),
                  has_bias ? gradient_output(p, {e.outputs}, mode, first, 4) : absent()},
          .attributes = {{"transposed", std::int64_t{transposed}}, {"accumulate", static_cast<std::int64_t>(mode)}},
          .scalars = {.tokens = e.tokens, .first_micro_batch = first},
          .unseen = {random(a, e.weight(transposed), 5), random(a, {e.outputs}, 6)}};
}

/// The cases, and of some quantized types one more each, whose weight has rows of 64 elements.
std::vector<Case> with_quantized(std::vector<Case> cases, Case (*make)(Precision, bool transposed), Precision p) {
  for (const DType type : kQuantized) {
    for (const bool transposed : {false, true}) {
      Case c = make(p, transposed);
      c.name += fmt::format(" weight {}", torch_name(type));
      c.in[1] = random_quantized(type, c.in[1].shape, 2);
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

/// Sum of dy * linear(x, weight, bias), and of addend * x.
double objective(const Case& c, const Operand& dy, const Operand& x, const Operand& weight, const Operand& bias,
                 const Operand& addend) {
  const Case forward{.name = "",
                     .in = {x, weight, bias, absent()},
                     .out = {output(DType::f64, dy.shape)},
                     .attributes = c.attributes,
                     .scalars = {}};
  const auto identity = elements(x.shape.elements(), [&](std::int64_t i) { return Real(x[i]); });
  return inner_product(dy, linear_reference(forward)[0]) + (addend.present ? inner_product(addend, identity) : 0.0);
}

double input_objective(const Case& c) { return objective(c, c.in[0], c.unseen[0], c.in[1], absent(), c.in[2]); }
double weight_objective(const Case& c) { return objective(c, c.in[0], c.in[1], c.unseen[0], c.unseen[1], absent()); }

constexpr Extents kLarge{.tokens = 2048, .inputs = 2048, .outputs = 2048};
double large_flops(const Case&) { return 2.0 * kLarge.tokens * kLarge.inputs * kLarge.outputs; }

}  // namespace

std::vector<Operation> linear_operations() {
  return {
      {.name = "linear",
       .cases = [](Precision p) -> std::vector<Case> {
         std::vector<Case> cases = {
             linear_case(p, {1, 1, 1}, false, false, false), linear_case(p, {13, 37, 29}, false, true, true),
             linear_case(p, {65, 130, 33}, true, false, true), linear_case(p, {1, 300, 97}, false, true, false),
             linear_case(p, {7, 64, 256}, true, true, false)};
         return with_quantized(
             std::move(cases),
             [](Precision q, bool transposed) {
               return linear_case(q, transposed ? Extents{13, 37, 64} : Extents{13, 64, 37}, transposed, true, true);
             },
             p);
       },
       .reference = linear_reference,
       .aliases = {{{.output = 0, .input = 3}}},
       .large = [](Precision p) { return linear_case(p, kLarge, false, false, true); },
       .flops = large_flops},
      {.name = "linear_group",
       .cases = linear_group_cases,
       .reference = linear_group_reference,
       .large =
           [](Precision p) {
             return linear_group_case(p, 1, kLarge.inputs, {kLarge.outputs, kLarge.outputs});
           }},
      {.name = "linear_backward_input",
       .cases = [](Precision p) -> std::vector<Case> {
         std::vector<Case> cases = {linear_backward_input_case(p, {1, 1, 1}, false, false),
                                    linear_backward_input_case(p, {13, 37, 29}, false, true),
                                    linear_backward_input_case(p, {65, 33, 130}, true, true),
                                    linear_backward_input_case(p, {5, 97, 300}, true, false)};
         return with_quantized(
             std::move(cases),
             [](Precision q, bool transposed) {
               return linear_backward_input_case(q, transposed ? Extents{13, 37, 64} : Extents{13, 64, 37}, transposed,
                                                 true);
             },
             p);
       },
       .reference = linear_backward_input_reference,
       .aliases = {{{.output = 0, .input = 2}}},
       .objective = input_objective,
       .derivatives = {{.output = 0, .input = 3}},
       .large = [](Precision p) { return linear_backward_input_case(p, kLarge, false, false); },
       .flops = large_flops},
      {.name = "linear_backward_weight",
       .cases = [](Precision p) -> std::vector<Case> {
         return {linear_backward_weight_case(p, {1, 1, 1}, false, true, Accumulate::overwrite, true),
                 linear_backward_weight_case(p, {130, 37, 29}, false, true, Accumulate::add, true),
                 linear_backward_weight_case(p, {13, 97, 65}, true, true, Accumulate::add_after_first, true),
                 linear_backward_weight_case(p, {65, 33, 130}, true, false, Accumulate::add_after_first, false)};
       },
       .reference = linear_backward_weight_reference,
       .objective = weight_objective,
       .derivatives = {{.output = 0, .input = 2}, {.output = 1, .input = 3}},
       .large =
           [](Precision p) {
             return linear_backward_weight_case(p, kLarge, false, false, Accumulate::overwrite, true);
           },
       .flops = large_flops},
  };
}

}  // namespace heddle::conformance
