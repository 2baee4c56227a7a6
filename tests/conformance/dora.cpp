#include "operation.h"

namespace heddle::conformance {
namespace {

struct Extents {
  std::int64_t tokens, inputs, outputs, rank;
};

Outputs norm_reference(const Case& c) {
  const Operand &weight = c.in[0], &a = c.in[1], &b = c.in[2];
  const bool is_transposed = c.attributes.integer("transposed") != 0;
  const std::int64_t rank = a.shape[0], inputs = a.shape[1], outputs = b.shape[0];
  const Real scaling = stored(DType::f32, c.attributes.real("scaling"));
  return {elements(outputs, [&](std::int64_t o) {
    return sqrt(sum(inputs, [&](std::int64_t i) {
      const Real low = sum(rank, [&](std::int64_t k) { return scaling * b[o * rank + k] * a[k * inputs + i]; });
      const Real merged = Real(weight[is_transposed ? i * outputs + o : o * inputs + i]) + low;
      return merged * merged;
    }));
  })};
}

Case norm_case(Precision p, Extents e, bool is_transposed) {
  const DType a = p.activation;
  const Shape weight = is_transposed ? Shape{e.inputs, e.outputs} : Shape{e.outputs, e.inputs};
  return {.name = fmt::format("I {} O {} r {} transposed {}", e.inputs, e.outputs, e.rank, is_transposed),
          .in = {random(a, weight, 1), random(a, {e.rank, e.inputs}, 2), random(a, {e.outputs, e.rank}, 3)},
          .out = {output(p.single, {e.outputs})},
          .attributes = {{"scaling", 0.75}, {"transposed", std::int64_t{is_transposed}}},
          .scalars = {.tokens = e.tokens}};
}

/// The same with a quantized weight.
Case with_quantized(Case c) {
  c.name += " weight q8_0";
  c.in[0] = random_quantized(DType::q8_0, c.in[0].shape, 1);
  return c;
}

Outputs scale_reference(const Case& c) {
  const Operand &z = c.in[0], &magnitude = c.in[1], &norms = c.in[2], &bias = c.in[3];
  const std::int64_t outputs = z.shape[1];
  return {elements(z.shape.elements(), [&](std::int64_t at) {
    const std::int64_t o = at % outputs;
    const Real y = Real(z[at]) * (Real(magnitude[o]) / norms[o]);
    return bias.present ? y + bias[o] : y;
  })};
}

/// Norms are positive.
Operand norms_of(Precision p, std::int64_t outputs) {
  Operand norms = random(p.single, {outputs}, 7);
  for (double& norm : norms.values) norm = round_to(p.single, 0.5 + std::abs(norm));
  return norms;
}

Case scale_case(Precision p, Extents e, bool has_bias) {
  const DType a = p.activation;
  return {.name = fmt::format("T {} O {} bias {}", e.tokens, e.outputs, has_bias),
          .in = {random(a, {e.tokens, e.outputs}, 1), random(a, {e.outputs}, 2), norms_of(p, e.outputs),
                 has_bias ? random(a, {e.outputs}, 3) : absent(a)},
          .out = {output(a, {e.tokens, e.outputs})},
          .attributes = {},
          .scalars = {.tokens = e.tokens}};
}

Outputs backward_reference(const Case& c) {
  const Operand &dy = c.in[0], &z = c.in[1], &magnitude = c.in[2], &norms = c.in[3];
  const std::int64_t rows = z.shape[0], outputs = z.shape[1];
  const auto dz = elements(z.shape.elements(), [&](std::int64_t at) {
    return Real(dy[at]) * (Real(magnitude[at % outputs]) / norms[at % outputs]);
  });
  const auto dmagnitude = elements(outputs, [&](std::int64_t o) {
    return initial(c, 1, o) +
           sum(rows, [&](std::int64_t t) { return dy[t * outputs + o] * (Real(z[t * outputs + o]) / norms[o]); });
  });
  const auto dbias = elements(c.out[2].present ? outputs : 0, [&](std::int64_t o) {
    return initial(c, 2, o) + sum(rows, [&](std::int64_t t) { return Real(dy[t * outputs + o]); });
  });
  return {dz, dmagnitude, dbias};
}

Case backward_case(Precision p, Extents e, bool has_bias, Accumulate mode, bool first) {
  const DType a = p.activation;
  const Shape z{e.tokens, e.outputs}, column{e.outputs};
  return {.name = fmt::format("T {} O {} bias {} accumulate {}", e.tokens, e.outputs, has_bias, static_cast<int>(mode)),
          .in = {random(a, z, 1), random(a, z, 2), random(a, column, 3), norms_of(p, e.outputs)},
          .out = {output(a, z), gradient_output(p, column, mode, first, 5),
                  has_bias ? gradient_output(p, column, mode, first, 6) : absent()},
          .attributes = {{"accumulate", static_cast<std::int64_t>(mode)}},
          .scalars = {.tokens = e.tokens, .first_micro_batch = first},
          .unseen = {random(a, column, 8)}};
}

double backward_objective(const Case& c) {
  const Case forward{.name = "",
                     .in = {c.in[1], c.in[2], c.in[3], c.unseen[0]},
                     .out = {output(DType::f64, c.in[1].shape)},
                     .attributes = {},
                     .scalars = {}};
  return inner_product(c.in[0], scale_reference(forward)[0]);
}

}  // namespace

std::vector<Operation> dora_operations() {
  return {{.name = "dora_norm",
           .cases = [](Precision p) -> std::vector<Case> {
             return {norm_case(p, {1, 1, 1, 1}, false),
                     norm_case(p, {3, 37, 29, 4}, false),
                     norm_case(p, {3, 130, 33, 7}, true),
                     norm_case(p, {3, 7, 130, 3}, true),
                     with_quantized(norm_case(p, {3, 64, 5, 3}, false)),
                     with_quantized(norm_case(p, {3, 5, 96, 3}, true))};
           },
           .reference = norm_reference},
          {.name = "dora_scale",
           .cases = [](Precision p) -> std::vector<Case> {
             return {scale_case(p, {1, 1, 1, 1}, false), scale_case(p, {13, 1, 37, 1}, true),
                     scale_case(p, {65, 1, 130, 1}, false)};
           },
           .reference = scale_reference,
           .aliases = {{{.output = 0, .input = 0}}}},
          {.name = "dora_scale_backward",
           .cases = [](Precision p) -> std::vector<Case> {
             return {backward_case(p, {1, 1, 1, 1}, false, Accumulate::overwrite, true),
                     backward_case(p, {13, 1, 37, 1}, true, Accumulate::add, true),
                     backward_case(p, {130, 1, 65, 1}, true, Accumulate::add_after_first, true),
                     backward_case(p, {65, 1, 130, 1}, false, Accumulate::add_after_first, false)};
           },
           .reference = backward_reference,
           .objective = backward_objective,
           .derivatives = {{.output = 0, .input = 1}, {.output = 1, .input = 2}, {.output = 2, .input = 4}}}};
}

}  // namespace heddle::conformance
