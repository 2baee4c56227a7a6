#include <numbers>

#include "operation.h"

namespace heddle::conformance {
namespace {

/// sqrt(2/pi) (x + 0.044715 x^3)
Real tanh_argument(Real x) { return std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * (x * x * x)); }

Real act(const Case& c, Real x) {
  switch (static_cast<Activation>(c.attributes.integer("activation"))) {
    case Activation::silu: return x / (1.0 + exp(-x));
    case Activation::gelu: return 0.5 * x * (1.0 + erf(x / std::numbers::sqrt2));
    case Activation::gelu_tanh: return 0.5 * x * (1.0 + tanh(tanh_argument(x)));
    case Activation::relu: break;
  }
  return x.value > 0 ? x : Real(0.0);
}

Real act_derivative(const Case& c, Real x) {
  switch (static_cast<Activation>(c.attributes.integer("activation"))) {
    case Activation::silu: {
      const Real s = 1.0 / (1.0 + exp(-x));
      return s * (1.0 + x * (1.0 - s));
    }
    case Activation::gelu: {
      const Real density = exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
      return 0.5 * (1.0 + erf(x / std::numbers::sqrt2)) + x * density;
    }
    case Activation::gelu_tanh: {
      const Real t = tanh(tanh_argument(x));
      const Real inner = std::sqrt(2.0 / std::numbers::pi) * (1.0 + 3.0 * 0.044715 * (x * x));
      return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner;
    }
    case Activation::relu: break;
  }
  return x.value > 0 ? 1.0 : 0.0;
}

Outputs activation_reference(const Case& c) {
  return {elements(c.in[0].shape.elements(), [&](std::int64_t i) { return act(c, c.in[0][i]); })};
}

Outputs activation_backward_reference(const Case& c) {
  const Operand &dy = c.in[0], &x = c.in[1];
  return {elements(x.shape.elements(), [&](std::int64_t i) { return dy[i] * act_derivative(c, x[i]); })};
}

double activation_objective(const Case& c) {
  const Operand& x = c.in[1];
  return inner_product(c.in[0], elements(x.shape.elements(), [&](std::int64_t i) { return act(c, x[i]); }));
}

Outputs glu_reference(const Case& c) {
  const Operand &gate = c.in[0], &up = c.in[1];
  return {elements(gate.shape.elements(), [&](std::int64_t i) { return act(c, gate[i]) * up[i]; })};
}

Outputs glu_backward_reference(const Case& c) {
  const Operand &dy = c.in[0], &gate = c.in[1], &up = c.in[2];
  const std::int64_t n = gate.shape.elements();
  return {elements(n, [&](std::int64_t i) { return Real(dy[i]) * up[i] * act_derivative(c, gate[i]); }),
          elements(n, [&](std::int64_t i) { return dy[i] * act(c, gate[i]); })};
}

double glu_objective(const Case& c) {
  const Operand &gate = c.in[1], &up = c.in[2];
  return inner_product(c.in[0],
                       elements(gate.shape.elements(), [&](std::int64_t i) { return act(c, gate[i]) * up[i]; }));
}

/// `inputs` operands and `outputs` operands, all A[tokens, width].
Case activation_case(Precision p, std::int64_t tokens, std::int64_t width, Activation activation, std::size_t inputs,
                     std::size_t outputs) {
  Case c{.name = fmt::format("[{}, {}] activation {}", tokens, width, static_cast<int>(activation)),
         .in = {},
         .out = std::vector<Operand>(outputs, output(p.activation, {tokens, width})),
         .attributes = {{"activation", static_cast<std::int64_t>(activation)}},
         .scalars = {.tokens = tokens}};
  for (std::size_t i = 0; i < inputs; ++i) c.in.push_back(random(p.activation, {tokens, width}, i + 1, 2.0));
  return c;
}

template <std::size_t inputs, std::size_t outputs>
std::vector<Case> activation_cases(Precision p) {
  std::vector<Case> list;
  for (const auto activation : {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
    list.push_back(activation_case(p, 1, 1, activation, inputs, outputs));
    list.push_back(activation_case(p, 13, 37, activation, inputs, outputs));
    if (p.activation != DType::f64) list.push_back(activation_case(p, 129, 300, activation, inputs, outputs));
  }
  return list;
}

template <std::size_t inputs, std::size_t outputs>
Case large_activation_case(Precision p) {
  return activation_case(p, 4096, 5632, Activation::silu, inputs, outputs);
}

}  // namespace

std::vector<Operation> activation_operations() {
  return {
      {.name = "glu",
       .cases = activation_cases<2, 1>,
       .reference = glu_reference,
       .aliases = {{{.output = 0, .input = 0}}, {{.output = 0, .input = 1}}},
       .large = large_activation_case<2, 1>},
      {.name = "glu_backward",
       .cases = activation_cases<3, 2>,
       .reference = glu_backward_reference,
       .aliases = {{{.output = 0, .input = 1}, {.output = 1, .input = 2}},
                   {{.output = 0, .input = 0}, {.output = 1, .input = 2}},
                   {{.output = 0, .input = 1}, {.output = 1, .input = 0}}},
       .objective = glu_objective,
       .derivatives = {{.output = 0, .input = 1}, {.output = 1, .input = 2}},
       .large = large_activation_case<3, 2>},
      {.name = "activation",
       .cases = activation_cases<1, 1>,
       .reference = activation_reference,
       .aliases = {{{.output = 0, .input = 0}}},
       .large = large_activation_case<1, 1>},
      {.name = "activation_backward",
       .cases = activation_cases<2, 1>,
       .reference = activation_backward_reference,
       .aliases = {{{.output = 0, .input = 0}}, {{.output = 0, .input = 1}}},
       .objective = activation_objective,
       .derivatives = {{.output = 0, .input = 1}},
       .large = large_activation_case<2, 1>},
  };
}

}  // namespace heddle::conformance
