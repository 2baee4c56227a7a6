#include "operation.h"

namespace heddle::conformance {
namespace {

constexpr double kEpsilon = 1e-5;

/// What is normed: x, or x + residual after its trip through memory.
std::vector<Real> normed(const Case& c, const Operand& x, const Operand& residual) {
  return elements(x.shape.elements(), [&](std::int64_t i) {
    return residual.present ? stored(c.out[0].dtype, Real(x[i]) + residual[i]) : Real(x[i]);
  });
}

Outputs rms_norm_reference(const Case& c) {
  const Operand &x = c.in[0], &weight = c.in[1], &residual = c.in[2];
  const std::int64_t hidden = x.shape.back();
  const std::vector<Real> s = normed(c, x, residual);
  const auto at = [&](std::int64_t i) { return s[static_cast<std::size_t>(i)]; };
  const auto inv_rms = elements(x.shape.rows(), [&](std::int64_t row) {
    const Real squares = sum(hidden, [&](std::int64_t h) { return at(row * hidden + h) * at(row * hidden + h); });
    return 1.0 / sqrt(squares / static_cast<double>(hidden) + kEpsilon);
  });
  const auto y = elements(x.shape.elements(), [&](std::int64_t i) {
    return at(i) * inv_rms[static_cast<std::size_t>(i / hidden)] *
           (Real(weight[i % hidden]) + c.attributes.real("weight_offset"));
  });
  return {y, inv_rms, residual.present ? s : std::vector<Real>{}};
}

Case rms_norm_case(Precision p, Shape shape, bool has_residual, double offset) {
  const DType a = p.activation;
  const Shape weight{shape.back()};
  return {.name = fmt::format("{} residual {} offset {}", shape.text(), has_residual, offset),
          .in = {random(a, shape, 1, 2.0), random(a, weight, 2), has_residual ? random(a, shape, 3) : absent(a)},
          .out = {output(a, shape), output(p.single, {shape.rows()}), has_residual ? output(a, shape) : absent(a)},
          .attributes = {{"epsilon", kEpsilon}, {"weight_offset", offset}},
          .scalars = {.tokens = shape[0]}};
}

Outputs rms_norm_backward_reference(const Case& c) {
  const Operand &dy = c.in[0], &x = c.in[1], &weight = c.in[2], &inv_rms = c.in[3], &addend = c.in[4];
  const std::int64_t hidden = x.shape.back(), rows = x.shape.rows();
  const auto n = [&](std::int64_t i) { return Real(x[i]) * inv_rms[i / hidden]; };
  const auto g = [&](std::int64_t i) {
    return dy[i] * (Real(weight[i % hidden]) + c.attributes.real("weight_offset"));
  };
  const auto mean = elements(rows, [&](std::int64_t row) {
    return sum(hidden, [&](std::int64_t h) { return g(row * hidden + h) * n(row * hidden + h); }) /
           static_cast<double>(hidden);
  });
  const auto dx = elements(x.shape.elements(), [&](std::int64_t i) {
    const Real own = inv_rms[i / hidden] * (g(i) - n(i) * mean[static_cast<std::size_t>(i / hidden)]);
    return addend.present ? own + addend[i] : own;
  });
  const auto dweight = elements(hidden, [&](std::int64_t h) {
    return initial(c, 1, h) + sum(rows, [&](std::int64_t row) { return dy[row * hidden + h] * n(row * hidden + h); });
  });
  return {dx, dweight, {}};
}

/// Sum of dy * y, and of addend * x: what the residual branch adds.
double rms_norm_objective(const Case& c) {
  const Case forward{.name = "",
                     .in = {c.in[1], c.in[2], absent()},
                     .out = {output(DType::f64, c.in[1].shape)},
                     .attributes = c.attributes,
                     .scalars = {}};
  const double own = inner_product(c.in[0], rms_norm_reference(forward)[0]);
  return own + (c.in[4].present ? inner_product(c.in[4], normed(forward, c.in[1], absent())) : 0.0);
}

Case rms_norm_backward_case(Precision p, Shape shape, bool has_addend, double offset, Accumulate mode, bool first) {
  const DType a = p.activation;
  const Case forward = rms_norm_case(p, shape, false, offset);
  const Shape weight{shape.back()};
  return {
      .name =
          fmt::format("{} addend {} offset {} accumulate {}", shape.text(), has_addend, offset, static_cast<int>(mode)),
      .in = {random(a, shape, 11), forward.in[0], forward.in[1],
             rounded(p.single, {shape.rows()}, rms_norm_reference(forward)[1]),
             has_addend ? random(a, shape, 12) : absent(a)},
      .out = {output(a, shape), gradient_output(p, weight, mode, first, 13),
              workspace({(shape.rows() + 63) / 64 + 2, shape.back()})},
      .attributes = {{"epsilon", kEpsilon}, {"weight_offset", offset}, {"accumulate", static_cast<std::int64_t>(mode)}},
      .scalars = {.tokens = shape[0], .first_micro_batch = first}};
}

Outputs layer_norm_reference(const Case& c) {
  const Operand &x = c.in[0], &weight = c.in[1], &bias = c.in[2], &residual = c.in[3];
  const std::int64_t hidden = x.shape.back(), rows = x.shape.rows();
  const std::vector<Real> s = normed(c, x, residual);
  const auto at = [&](std::int64_t i) { return s[static_cast<std::size_t>(i)]; };
  const auto mean = elements(rows, [&](std::int64_t row) {
    return sum(hidden, [&](std::int64_t h) { return at(row * hidden + h); }) / static_cast<double>(hidden);
  });
  const auto centered = [&](std::int64_t i) { return at(i) - mean[static_cast<std::size_t>(i / hidden)]; };
  const auto inv_std = elements(rows, [&](std::int64_t row) {
    const Real squares =
        sum(hidden, [&](std::int64_t h) { return centered(row * hidden + h) * centered(row * hidden + h); });
    return 1.0 / sqrt(squares / static_cast<double>(hidden) + kEpsilon);
  });
  const auto y = elements(x.shape.elements(), [&](std::int64_t i) {
    const Real scaled = centered(i) * inv_std[static_cast<std::size_t>(i / hidden)] * weight[i % hidden];
    return bias.present ? scaled + bias[i % hidden] : scaled;
  });
  return {y, mean, inv_std, residual.present ? s : std::vector<Real>{}};
}

Case layer_norm_case(Precision p, Shape shape, bool has_bias, bool has_residual) {
  const DType a = p.activation;
  const Shape weight{shape.back()};
  return {.name = fmt::format("{} bias {} residual {}", shape.text(), has_bias, has_residual),
          .in = {random(a, shape, 1, 2.0), random(a, weight, 2), has_bias ? random(a, weight, 3) : absent(a),
                 has_residual ? random(a, shape, 4) : absent(a)},
          .out = {output(a, shape), output(p.single, {shape.rows()}), output(p.single, {shape.rows()}),
                  has_residual ? output(a, shape) : absent(a)},
          .attributes = {{"epsilon", kEpsilon}},
          .scalars = {.tokens = shape[0]}};
}

Outputs layer_norm_backward_reference(const Case& c) {
  const Operand &dy = c.in[0], &x = c.in[1], &weight = c.in[2], &mean = c.in[3], &inv_std = c.in[4], &addend = c.in[5];
  const std::int64_t hidden = x.shape.back(), rows = x.shape.rows();
  const auto n = [&](std::int64_t i) { return (Real(x[i]) - mean[i / hidden]) * inv_std[i / hidden]; };
  const auto g = [&](std::int64_t i) { return Real(dy[i]) * weight[i % hidden]; };
  const auto mean_g = elements(rows, [&](std::int64_t row) {
    return sum(hidden, [&](std::int64_t h) { return g(row * hidden + h); }) / static_cast<double>(hidden);
  });
  const auto mean_gn = elements(rows, [&](std::int64_t row) {
    return sum(hidden, [&](std::int64_t h) { return g(row * hidden + h) * n(row * hidden + h); }) /
           static_cast<double>(hidden);
  });
  const auto dx = elements(x.shape.elements(), [&](std::int64_t i) {
    const auto row = static_cast<std::size_t>(i / hidden);
    const Real own = inv_std[i / hidden] * (g(i) - mean_g[row] - n(i) * mean_gn[row]);
    return addend.present ? own + addend[i] : own;
  });
  const auto dweight = elements(hidden, [&](std::int64_t h) {
    return initial(c, 1, h) + sum(rows, [&](std::int64_t row) { return dy[row * hidden + h] * n(row * hidden + h); });
  });
  const auto dbias = elements(c.out[2].present ? hidden : 0, [&](std::int64_t h) {
    return initial(c, 2, h) + sum(rows, [&](std::int64_t row) { return Real(dy[row * hidden + h]); });
  });
  return {dx, dweight, dbias, {}};
}

double layer_norm_objective(const Case& c) {
  const Case forward{.name = "",
                     .in = {c.in[1], c.in[2], c.unseen[0], absent()},
                     .out = {output(DType::f64, c.in[1].shape)},
                     .attributes = c.attributes,
                     .scalars = {}};
  const double own = inner_product(c.in[0], layer_norm_reference(forward)[0]);
  return own + (c.in[5].present ? inner_product(c.in[5], normed(forward, c.in[1], absent())) : 0.0);
}

Case layer_norm_backward_case(Precision p, Shape shape, bool has_bias, bool has_addend, Accumulate mode, bool first) {
  const DType a = p.activation;
  const Case forward = layer_norm_case(p, shape, has_bias, false);
  const Outputs saved = layer_norm_reference(forward);
  const Shape weight{shape.back()};
  return {.name = fmt::format("{} bias {} addend {} accumulate {}", shape.text(), has_bias, has_addend,
                              static_cast<int>(mode)),
          .in = {random(a, shape, 11), forward.in[0], forward.in[1], rounded(p.single, {shape.rows()}, saved[1]),
                 rounded(p.single, {shape.rows()}, saved[2]), has_addend ? random(a, shape, 12) : absent(a)},
          .out = {output(a, shape), gradient_output(p, weight, mode, first, 13),
                  has_bias ? gradient_output(p, weight, mode, first, 14) : absent(),
                  workspace({2 * ((shape.rows() + 63) / 64) + 2, shape.back()})},
          .attributes = {{"epsilon", kEpsilon}, {"accumulate", static_cast<std::int64_t>(mode)}},
          .scalars = {.tokens = shape[0], .first_micro_batch = first},
          .unseen = {forward.in[2]}};
}

}  // namespace

std::vector<Operation> norm_operations() {
  return {
      {.name = "rms_norm",
       .cases = [](Precision p) -> std::vector<Case> {
         return {rms_norm_case(p, {1, 1}, false, 0.0), rms_norm_case(p, {3, 33}, true, 0.0),
                 rms_norm_case(p, {130, 7}, false, 1.0), rms_norm_case(p, {5, 3, 64}, false, 0.0),
                 rms_norm_case(p, {17, 1030}, true, 1.0)};
       },
       .reference = rms_norm_reference,
       .aliases = {{{.output = 2, .input = 0}}, {{.output = 2, .input = 2}}},
       .large =
           [](Precision p) {
             return rms_norm_case(p, {8192, 2048}, true, 0.0);
           }},
      {.name = "rms_norm_backward",
       .cases = [](Precision p) -> std::vector<Case> {
         return {rms_norm_backward_case(p, {1, 2}, false, 0.0, Accumulate::overwrite, true),
                 rms_norm_backward_case(p, {130, 33}, true, 0.0, Accumulate::add, true),
                 rms_norm_backward_case(p, {64, 3, 16}, false, 1.0, Accumulate::add_after_first, true),
                 rms_norm_backward_case(p, {65, 200}, true, 1.0, Accumulate::add_after_first, false)};
       },
       .reference = rms_norm_backward_reference,
       .aliases = {{{.output = 0, .input = 0}}, {{.output = 0, .input = 4}}},
       .objective = rms_norm_objective,
       .derivatives = {{.output = 0, .input = 1}, {.output = 1, .input = 2}},
       .large =
           [](Precision p) {
             return rms_norm_backward_case(p, {8192, 2048}, true, 0.0, Accumulate::overwrite, true);
           }},
      {.name = "layer_norm",
       .cases = [](Precision p) -> std::vector<Case> {
         return {layer_norm_case(p, {1, 1}, true, false), layer_norm_case(p, {3, 33}, true, true),
                 layer_norm_case(p, {130, 7}, false, false), layer_norm_case(p, {17, 1030}, false, true)};
       },
       .reference = layer_norm_reference,
       .aliases = {{{.output = 3, .input = 0}}, {{.output = 3, .input = 3}}},
       .large =
           [](Precision p) {
             return layer_norm_case(p, {8192, 2048}, true, true);
           }},
      {.name = "layer_norm_backward",
       .cases = [](Precision p) -> std::vector<Case> {
         return {layer_norm_backward_case(p, {1, 3}, true, false, Accumulate::overwrite, true),
                 layer_norm_backward_case(p, {130, 33}, false, true, Accumulate::add, true),
                 layer_norm_backward_case(p, {64, 16}, true, true, Accumulate::add_after_first, true),
                 layer_norm_backward_case(p, {65, 200}, true, false, Accumulate::add_after_first, false)};
       },
       .reference = layer_norm_backward_reference,
       .aliases = {{{.output = 0, .input = 0}}, {{.output = 0, .input = 5}}},
       .objective = layer_norm_objective,
       .derivatives = {{.output = 0, .input = 1}, {.output = 1, .input = 2}, {.output = 2, .input = 6}},
       .large =
           [](Precision p) {
             return layer_norm_backward_case(p, {8192, 2048}, true, true, Accumulate::overwrite, true);
           }},
  };
}

}  // namespace heddle::conformance
