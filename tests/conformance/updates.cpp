// What the optimizers beside AdamW compute, from their papers and the programs that people know them from.
#include <array>

#include "operation.h"

namespace heddle::conformance {
namespace {

double constant(double value) { return round_to(DType::f32, value); }

double factor_of(const Case& c) { return c.in[1].present && c.in[1][0] != 0.0 ? c.in[1][0] : 1.0; }

double learning_rate_of(const Case& c) { return c.scalars.learning_rate * c.attributes.real("rate", 1.0); }

const Operand& master_of(const Case& c) { return c.out[1].present ? c.out[1] : c.out[0]; }

Operand positive(Operand operand) {
  for (double& v : operand.values) v = std::abs(v);
  return operand;
}

/// The weights in the parameter's type, and their master where that is apart.
std::vector<Operand> weights(Precision p, const Shape& shape) {
  const Operand master = random(DType::f32, shape, 1);
  return {given(p.activation, shape, master.values), p.activation == DType::f32 ? absent() : master};
}

/// A case of an update that reads gradient and factor; `states` come behind the weights.
Case update_case(Precision p, std::int64_t n, double factor, const std::vector<Operand>& states,
                 Attributes attributes) {
  Case c{.name = fmt::format("n {} factor {}", n, factor),
         .in = {random(DType::f32, {n}, 2), given(DType::f32, {1}, {factor})},
         .out = weights(p, {n}),
         .attributes = std::move(attributes),
         .scalars = {.learning_rate = 3e-2, .bias_correction1 = 0.271, .bias_correction2 = 0.142625, .update = 3}};
  c.out.insert(c.out.end(), states.begin(), states.end());
  return c;
}

// ---- lion

Outputs lion_reference(const Case& c) {
  const double lr = learning_rate_of(c), beta1 = c.attributes.real("beta1"), beta2 = c.attributes.real("beta2");
  Outputs outputs(3);
  for (std::int64_t i = 0; i < c.in[0].shape.elements(); ++i) {
    const Real g = factor_of(c) * Real(c.in[0][i]), m = c.out[2][i];
    const Real mixed = constant(beta1) * m + constant(1.0 - beta1) * g;
    const double sign = mixed.value > 0.0 ? 1.0 : mixed.value < 0.0 ? -1.0 : 0.0;
    const Real w = constant(1.0 - lr * c.attributes.real("weight_decay")) * Real(master_of(c)[i]) - constant(lr) * sign;
    outputs[0].push_back(w);
    if (c.out[1].present) outputs[1].push_back(w);
    outputs[2].push_back(constant(beta2) * m + constant(1.0 - beta2) * g);
  }
  return outputs;
}

Case lion_case(Precision p, std::int64_t n, double factor, double weight_decay) {
  return update_case(p, n, factor, {random(DType::f32, {n}, 3)},
                     {{"beta1", 0.9}, {"beta2", 0.99}, {"weight_decay", weight_decay}, {"rate", 0.3}});
}

// ---- sgd

Outputs sgd_reference(const Case& c) {
  const Attributes& a = c.attributes;
  const double momentum = a.real("momentum"), lr = learning_rate_of(c);
  Outputs outputs(3);
  for (std::int64_t i = 0; i < c.in[0].shape.elements(); ++i) {
    const Real w = constant(1.0 - lr * a.real("weight_decay")) * Real(master_of(c)[i]);
    const Real g = factor_of(c) * Real(c.in[0][i]);
    Real direction = g;
    if (c.out[2].present) {
      const Real kept = constant(momentum) * Real(c.out[2][i]) + constant(1.0 - a.real("dampening")) * g;
      const Real buffer = c.scalars.update == 1 ? g : kept;
      direction = a.integer("nesterov") != 0 ? g + constant(momentum) * buffer : buffer;
      outputs[2].push_back(buffer);
    }
    const Real next = w - constant(lr) * direction;
    outputs[0].push_back(next);
    if (c.out[1].present) outputs[1].push_back(next);
  }
  return outputs;
}

Case sgd_case(Precision p, std::int64_t n, double momentum, double dampening, bool nesterov, std::int64_t update) {
  Case c = update_case(p, n, 0.37, {momentum == 0.0 ? absent() : random(DType::f32, {n}, 3)},
                       {{"momentum", momentum},
                        {"dampening", dampening},
                        {"nesterov", std::int64_t{nesterov}},
                        {"weight_decay", 0.1},
                        {"rate", 2.5}});
  c.name += fmt::format(" momentum {} dampening {} nesterov {} update {}", momentum, dampening, nesterov, update);
  c.scalars.update = update;
  return c;
}

// ---- adamw_8bit

/// The values of bitsandbytes.functional.create_dynamic_map, which a test of the kernels compares one by one: means
/// between the even boundaries of [0.1, 1], 2^i of them (unsigned: 2^(i+1)) times 10^(i-6), and 0 and 1.
std::vector<double> dynamic_map(bool is_signed) {
  std::vector<double> values = {0.0, 1.0};
  for (int i = 0; i < 7; ++i) {
    const int count = 1 << (is_signed ? i : i + 1);
    for (int j = 0; j < count; ++j) {
      const double mean = (0.1 + 0.9 * (j + 0.5) / count) * std::pow(10.0, i - 6);
      values.push_back(mean);
      if (is_signed) values.push_back(-mean);
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

/// Code of the nearest value; where that of another lies within the error of x, both are right.
Real code_of(const std::vector<double>& map, Real x) {
  const auto nearest = [&](double value) {
    const auto above = std::lower_bound(map.begin(), map.end(), value);
    if (above == map.begin() || (above != map.end() && *above - value < value - above[-1]))
      return static_cast<double>(above - map.begin());
    return static_cast<double>(above - map.begin() - 1);
  };
  const double tolerance = x.error + 4 * kUnit * std::abs(x.value);
  const double low = nearest(x.value - tolerance), high = nearest(x.value + tolerance);
  return {(low + high) / 2, (high - low) / 2};
}

Outputs adamw_8bit_reference(const Case& c) {
  constexpr std::int64_t kBlock = 256;
  static const std::array<std::vector<double>, 2> maps = {dynamic_map(true), dynamic_map(false)};
  const Attributes& a = c.attributes;
  const std::int64_t n = c.in[0].shape.elements();
  const double lr = c.scalars.learning_rate;
  const std::array beta = {a.real("beta1"), a.real("beta2")};
  std::array<std::vector<Real>, 2> moments;
  Outputs outputs(6);
  for (std::int64_t i = 0; i < n; ++i) {
    const Real g = factor_of(c) * Real(c.in[0][i]);
    for (std::size_t k = 0; k < 2; ++k) {
      const auto code = static_cast<std::size_t>(c.out[2 + 2 * k][i]);
      const Real coded = stored(DType::f32, maps[k][code]) * c.out[3 + 2 * k][i / kBlock];
      const Real added = constant(1.0 - beta[k]) * g;
      moments[k].push_back(constant(beta[k]) * coded + (k == 0 ? added : added * g));
    }
    const auto at = static_cast<std::size_t>(i);
    const Real denominator =
        sqrt(moments[1][at]) / constant(std::sqrt(c.scalars.bias_correction2)) + constant(a.real("epsilon"));
    const Real step = constant(lr / c.scalars.bias_correction1) * moments[0][at] / denominator;
    const Real w = constant(1.0 - lr * a.real("weight_decay")) * Real(master_of(c)[i]) - step;
    outputs[0].push_back(w);
    if (c.out[1].present) outputs[1].push_back(w);
  }
  for (std::size_t k = 0; k < 2; ++k) {
    for (std::int64_t begin = 0; begin < n; begin += kBlock) {
      const std::int64_t end = std::min(n, begin + kBlock);
      Real scale = 0.0;
      for (std::int64_t i = begin; i < end; ++i) {
        const Real x = moments[k][static_cast<std::size_t>(i)];
        if (std::abs(x.value) > scale.value) scale = {std::abs(x.value), x.error};
      }
      if (scale.value == 0.0) scale = 1.0;
      outputs[3 + 2 * k].push_back(scale);
      for (std::int64_t i = begin; i < end; ++i)
        outputs[2 + 2 * k].push_back(code_of(maps[k], moments[k][static_cast<std::size_t>(i)] / scale));
    }
  }
  return outputs;
}

Case adamw_8bit_case(Precision p, std::int64_t n, double factor, double weight_decay) {
  const std::int64_t blocks = (n + 255) / 256;
  const auto codes = [&](std::uint64_t stream) { return given(DType::u8, {n}, random_ids({n}, 256, stream).values); };
  return update_case(
      p, n, factor,
      {codes(3), positive(random(DType::f32, {blocks}, 4)), codes(5), positive(random(DType::f32, {blocks}, 6))},
      {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"weight_decay", weight_decay}});
}

// ---- muon

Outputs muon_momentum_reference(const Case& c) {
  const double momentum = c.attributes.real("momentum");
  Outputs outputs(2);
  for (std::int64_t i = 0; i < c.in[0].shape.elements(); ++i) {
    const Real g = factor_of(c) * Real(c.in[0][i]), b = c.out[1][i];
    const Real next = b + constant(1.0 - momentum) * (g - b);
    const bool is_nesterov = c.attributes.integer("nesterov") != 0;
    outputs[0].push_back(is_nesterov ? g + constant(momentum) * (next - g) : next);
    outputs[1].push_back(next);
  }
  return outputs;
}

Case muon_momentum_case(std::int64_t n, double momentum, bool nesterov) {
  return {.name = fmt::format("n {} momentum {} nesterov {}", n, momentum, nesterov),
          .in = {random(DType::f32, {n}, 1), given(DType::f32, {1}, {0.37})},
          .out = {output(DType::f32, {n}), random(DType::f32, {n}, 2)},
          .attributes = {{"momentum", momentum}, {"nesterov", std::int64_t{nesterov}}},
          .scalars = {}};
}

/// [rows, columns] = a [rows, depth] times b [depth, columns].
std::vector<Real> product(const std::vector<Real>& a, const std::vector<Real>& b, std::int64_t rows, std::int64_t depth,
                          std::int64_t columns) {
  return elements(rows * columns, [&](std::int64_t i) {
    return sum(depth, [&](std::int64_t k) {
      return a[static_cast<std::size_t>(i / columns * depth + k)] *
             b[static_cast<std::size_t>(k * columns + i % columns)];
    });
  });
}

/// a X + (b A + c A A) X with A = X Xᵀ, as the paper has it, on the left whatever the shape: the longer side's A gives
/// the same matrix.
Outputs newton_schulz_reference(const Case& c) {
  const std::int64_t rows = c.in[0].shape[0], columns = c.in[0].shape[1];
  const Real norm = sqrt(sum(rows * columns, [&](std::int64_t i) { return Real(c.in[0][i]) * c.in[0][i]; }));
  std::vector<Real> x = elements(
      rows * columns, [&](std::int64_t i) { return Real(c.in[0][i]) / (norm.value > 1e-7 ? norm : Real(1e-7)); });
  for (std::int64_t step = 0; step < c.attributes.integer("steps"); ++step) {
    const auto turned = elements(
        rows * columns, [&](std::int64_t i) { return x[static_cast<std::size_t>(i % rows * columns + i / rows)]; });
    const auto gram = product(x, turned, rows, columns, rows);
    const auto square = product(gram, gram, rows, rows, rows);
    const auto factor = elements(rows * rows, [&](std::int64_t i) {
      const auto at = static_cast<std::size_t>(i);
      const double identity = i / rows == i % rows ? constant(3.4445) : 0.0;
      return identity + constant(-4.7750) * gram[at] + constant(2.0315) * square[at];
    });
    x = product(factor, x, rows, rows, columns);
  }
  return {x, {}};
}

Case newton_schulz_case(std::int64_t rows, std::int64_t columns, std::int64_t steps, double scale = 1.0) {
  const std::int64_t least = std::min(rows, columns);
  return {.name = fmt::format("[{}, {}] steps {} scale {}", rows, columns, steps, scale),
          .in = {random(DType::f32, {rows, columns}, 1, scale)},
          .out = {output(DType::f32, {rows, columns}), workspace({rows * columns + 2 * least * least})},
          .attributes = {{"steps", steps}},
          .scalars = {}};
}

// ---- adafactor

Real blended(double kept, double state, Real mean) {
  return constant(kept) * Real(state) + constant(1.0 - kept) * mean;
}

Outputs adafactor_reference(const Case& c) {
  const Operand& gradient = c.in[0];
  const std::int64_t n = gradient.shape.elements(), columns = gradient.shape.back();
  const bool is_factored = gradient.shape.rank() >= 2;
  const std::int64_t rows = is_factored ? gradient.shape[gradient.shape.rank() - 2] : 1;
  const double kept = 1.0 - std::pow(static_cast<double>(c.scalars.update), c.attributes.real("decay_rate"));
  const auto g = [&](std::int64_t i) { return factor_of(c) * Real(gradient[i]); };
  const auto u = [&](std::int64_t i) { return g(i) * g(i) + 1e-30; };
  Outputs outputs(5);
  std::vector<Real> direction;
  for (std::int64_t m = 0; is_factored && m < n / (rows * columns); ++m) {
    const std::int64_t first = m * rows * columns;
    const auto row = elements(rows, [&](std::int64_t r) {
      const Real mean = sum(columns, [&](std::int64_t k) { return u(first + r * columns + k); }) / double(columns);
      return blended(kept, c.out[1][m * rows + r], mean);
    });
    const auto column = elements(columns, [&](std::int64_t k) {
      const Real mean = sum(rows, [&](std::int64_t r) { return u(first + r * columns + k); }) / double(rows);
      return blended(kept, c.out[2][m * columns + k], mean);
    });
    const Real mean_row = sum(rows, [&](std::int64_t r) { return row[static_cast<std::size_t>(r)]; }) / double(rows);
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      const Real of_row = 1.0 / sqrt(row[static_cast<std::size_t>(i / columns)] / mean_row);
      const Real of_column = 1.0 / sqrt(column[static_cast<std::size_t>(i % columns)]);
      direction.push_back(g(first + i) * (of_row * (of_column * Real(1.0))));
    }
    outputs[1].insert(outputs[1].end(), row.begin(), row.end());
    outputs[2].insert(outputs[2].end(), column.begin(), column.end());
  }
  for (std::int64_t i = 0; !is_factored && i < n; ++i) {
    outputs[3].push_back(blended(kept, c.out[3][i], u(i)));
    direction.push_back(g(i) / sqrt(outputs[3].back()));
  }
  const Real rms = sqrt(sum(n,
                            [&](std::int64_t i) {
                              return direction[static_cast<std::size_t>(i)] * direction[static_cast<std::size_t>(i)];
                            }) /
                        double(n)) /
                   c.attributes.real("clip_threshold");
  for (const Real d : direction) outputs[0].push_back(rms.value > 1.0 ? d * (1.0 / rms) : d);
  return outputs;
}

Case adafactor_case(const Shape& shape, double clip_threshold, std::int64_t update) {
  const bool is_factored = shape.rank() >= 2;
  std::vector<std::int64_t> rows(shape.extents().begin(), shape.extents().end()), columns = rows;
  if (is_factored) {
    rows.pop_back();
    columns.erase(columns.end() - 2);
  }
  Operand workspace = output(DType::f64, {is_factored ? shape.rows() + shape.back() : shape.elements()});
  workspace.compared = false;
  return {.name = fmt::format("{} clip_threshold {} update {}", shape.text(), clip_threshold, update),
          .in = {random(DType::f32, shape, 1, 0.1), given(DType::f32, {1}, {0.37})},
          .out = {output(DType::f32, shape), is_factored ? positive(random(DType::f32, Shape(rows), 2)) : absent(),
                  is_factored ? positive(random(DType::f32, Shape(columns), 3)) : absent(),
                  is_factored ? absent() : positive(random(DType::f32, shape, 4)), workspace},
          .attributes = {{"decay_rate", -0.8}, {"clip_threshold", clip_threshold}},
          .scalars = {.update = update}};
}

// ---- descend

Outputs descend_reference(const Case& c) {
  const double lr = c.scalars.learning_rate;
  Outputs outputs(2);
  for (std::int64_t i = 0; i < c.in[0].shape.elements(); ++i) {
    const Real w = constant(1.0 - lr * c.attributes.real("weight_decay")) * Real(master_of(c)[i]) -
                   constant(lr * c.attributes.real("rate")) * Real(c.in[0][i]);
    outputs[0].push_back(w);
    if (c.out[1].present) outputs[1].push_back(w);
  }
  return outputs;
}

Case descend_case(Precision p, std::int64_t n, double weight_decay, double rate) {
  return {.name = fmt::format("n {} weight decay {} rate {}", n, weight_decay, rate),
          .in = {random(DType::f32, {n}, 2)},
          .out = weights(p, {n}),
          .attributes = {{"weight_decay", weight_decay}, {"rate", rate}},
          .scalars = {.learning_rate = 3e-2}};
}

constexpr std::int64_t kLarge = std::int64_t{1} << 24;

}  // namespace

std::vector<Operation> update_operations() {
  return {
      {.name = "lion",
       .cases = [](Precision p) -> std::vector<Case> {
         return {lion_case(p, 1, 1.0, 0.1), lion_case(p, 1001, 0.37, 0.0), lion_case(p, 16384 * 2 + 3, 0.0, 0.01)};
       },
       .reference = lion_reference,
       .large = [](Precision p) { return lion_case(p, kLarge, 0.37, 0.1); }},
      {.name = "sgd",
       .cases = [](Precision p) -> std::vector<Case> {
         return {sgd_case(p, 1, 0.0, 0.0, false, 1), sgd_case(p, 1001, 0.9, 0.1, false, 1),
                 sgd_case(p, 1001, 0.9, 0.1, false, 2), sgd_case(p, 16384 * 2 + 3, 0.9, 0.0, true, 2)};
       },
       .reference = sgd_reference,
       .large = [](Precision p) { return sgd_case(p, kLarge, 0.9, 0.0, false, 2); }},
      {.name = "adamw_8bit",
       .cases = [](Precision p) -> std::vector<Case> {
         return {adamw_8bit_case(p, 1, 1.0, 0.1), adamw_8bit_case(p, 1001, 0.37, 0.0),
                 adamw_8bit_case(p, 16384 * 2 + 3, 0.0, 0.01)};
       },
       .reference = adamw_8bit_reference,
       .large = [](Precision p) { return adamw_8bit_case(p, kLarge, 0.37, 0.1); }},
      {.name = "muon_momentum",
       .cases = [](Precision) -> std::vector<Case> {
         return {muon_momentum_case(1, 0.95, true), muon_momentum_case(1001, 0.3, true),
                 muon_momentum_case(16384 * 2 + 3, 0.95, false)};
       },
       .reference = muon_momentum_reference,
       .aliases = {{{.output = 0, .input = 0}}},
       .precisions = {DType::f32},
       .large = [](Precision) { return muon_momentum_case(kLarge, 0.95, true); }},
      {.name = "newton_schulz",
       .cases = [](Precision) -> std::vector<Case> {
         return {newton_schulz_case(1, 1, 1), newton_schulz_case(1, 9, 2), newton_schulz_case(12, 20, 2),
                 newton_schulz_case(33, 7, 2), newton_schulz_case(5, 5, 1, 1e-9)};
       },
       .reference = newton_schulz_reference,
       .aliases = {{{.output = 0, .input = 0}}},
       .precisions = {DType::f32},
       .large = [](Precision) { return newton_schulz_case(1024, 4096, 5); },
       .flops = [](const Case&) { return 5 * 2.0 * 1024 * (2.0 * 1024 * 4096 + 1024.0 * 1024); }},
      {.name = "adafactor",
       .cases = [](Precision) -> std::vector<Case> {
         return {adafactor_case({1}, 1.0, 1),       adafactor_case({1001}, 1.0, 3),
                 adafactor_case({17}, 1e3, 1),      adafactor_case({1, 1}, 1.0, 1),
                 adafactor_case({33, 70}, 1.0, 1),  adafactor_case({130, 21}, 0.01, 4),
                 adafactor_case({3, 5, 66}, 0.1, 2)};
       },
       .reference = adafactor_reference,
       .aliases = {{{.output = 0, .input = 0}}},
       .precisions = {DType::f32},
       .large =
           [](Precision) {
             return adafactor_case({4096, 4096}, 1.0, 3);
           }},
      {.name = "descend",
       .cases = [](Precision p) -> std::vector<Case> {
         return {descend_case(p, 1, 0.1, 1.0), descend_case(p, 1001, 0.0, 1.6),
                 descend_case(p, 16384 * 2 + 3, 0.01, 0.2)};
       },
       .reference = descend_reference,
       .large = [](Precision p) { return descend_case(p, kLarge, 0.1, 1.0); }},
  };
}

}  // namespace heddle::conformance
