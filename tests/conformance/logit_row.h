#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "operation.h"
#include "real.h"

namespace heddle::conformance {

inline constexpr double kIgnored = -100.0;

/// The operands of an adapter, behind all others: its branch x2 and weight2, rows, DoRA's magnitudes and norms. Their
/// gradients are the last outputs: dx2, dweight2, drows, dm.
inline constexpr std::size_t kAdapterInputs = 5, kAdapterOutputs = 4;
inline std::size_t adapter_inputs(const Case& c) { return c.in.size() - kAdapterInputs; }
inline std::size_t adapter_outputs(const Case& c) { return c.out.size() - kAdapterOutputs; }

/// weight[v, h] of a weight [V, H], or [H, V] where the attribute says so; of an id with a row of its own, that. Beside
/// activations in bf16 a quantized one is rounded to that.
inline double weight_at(const Case& c, std::int64_t v, std::int64_t h) {
  const Operand& weight = c.in[1];
  const std::int64_t hidden = c.in[0].shape[1], vocabulary = weight.shape.elements() / hidden;
  const auto ids = c.attributes.list("row_ids"), places = c.attributes.list("row_places");
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] == static_cast<double>(v))
      return c.in[adapter_inputs(c) + 2][static_cast<std::int64_t>(places[i]) * hidden + h];
  }
  const double value = weight[c.attributes.integer("transposed") != 0 ? h * vocabulary + v : v * hidden + h];
  return c.in[0].dtype == DType::bf16 ? round_to(DType::bf16, value) : value;
}

/// What an adapter's branch adds to the logit of token t and id v.
inline Real branch_of(const Case& c, std::int64_t t, std::int64_t v) {
  const Operand &branch = c.in[adapter_inputs(c)], &weight = c.in[adapter_inputs(c) + 1];
  if (!branch.present) return {};
  const std::int64_t rank = branch.shape[1];
  return sum(rank, [&](std::int64_t k) { return Real(branch[t * rank + k]) * weight[v * rank + k]; });
}

/// What DoRA multiplies the logits of id v by.
inline Real magnitude_of(const Case& c, std::int64_t v) {
  const Operand &magnitude = c.in[adapter_inputs(c) + 3], &norms = c.in[adapter_inputs(c) + 4];
  return magnitude.present ? Real(magnitude[v]) / norms[v] : Real(1.0);
}

/// d as the products take it: beside activations in bf16 rounded to that.
inline Real taken(const Case& c, const Real& d) { return c.in[0].dtype == DType::bf16 ? stored(DType::bf16, d) : d; }

/// Row t of the logits after scale and cap, and its softmax; the fast kernels never hold all rows.
class LogitRow {
 public:
  LogitRow(const Case& c, std::int64_t t) {
    const Operand& x = c.in[0];
    const std::int64_t hidden = x.shape[1], vocabulary = c.in[1].shape.elements() / hidden;
    const double cap = c.attributes.real("softcap"), scale = c.attributes.real("logit_scale", 1.0);
    double greatest = -1e300;
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      const Real product = sum(hidden, [&](std::int64_t h) { return Real(x[t * hidden + h]) * weight_at(c, v, h); });
      products_.push_back(product + branch_of(c, t, v));
      const Real factor = stored(DType::f32, scale) * magnitude_of(c, v), scaled = factor * products_.back();
      const Real z = cap == 0.0 ? scaled : cap * tanh(scaled / cap);
      logits_.push_back(z);
      slopes_.push_back(factor * (cap == 0.0 ? Real(1.0) : 1.0 - (z / cap) * (z / cap)));
      greatest = std::max(greatest, z.value);
    }
    log_sum_ = greatest + log(sum(vocabulary, [&](std::int64_t v) { return exp(logit(v) - greatest); }));
    smoothing_ = c.attributes.real("label_smoothing");
    z_loss_ = c.attributes.real("z_loss");
  }
  /// Cross entropy against (1 - e) onehot + e / V, as transformers' LabelSmoother has it, plus w log^2 Z (PaLM).
  Real loss(std::int64_t label) const {
    const auto vocabulary = static_cast<std::int64_t>(logits_.size());
    const Real even = sum(vocabulary, [&](std::int64_t v) { return log_sum_ - logit(v); }) * (1.0 / vocabulary);
    return (1.0 - smoothing_) * (log_sum_ - logit(label)) + smoothing_ * even + z_loss_ * (log_sum_ * log_sum_);
  }
  /// The product of token and id, with the branch's.
  Real product(std::int64_t v) const { return products_[static_cast<std::size_t>(v)]; }
  /// d loss / d product, before magnitude, scale and cap.
  Real gradient(std::int64_t v, std::int64_t label) const {
    const Real p = exp(logit(v) - log_sum_);
    const double target = (v == label ? 1.0 - smoothing_ : 0.0) + smoothing_ / static_cast<double>(logits_.size());
    return (p - target + 2.0 * z_loss_ * (log_sum_ * p)) * slopes_[static_cast<std::size_t>(v)];
  }

 private:
  Real logit(std::int64_t v) const { return logits_[static_cast<std::size_t>(v)]; }
  std::vector<Real> products_, logits_, slopes_;
  Real log_sum_;
  double smoothing_ = 0.0, z_loss_ = 0.0;
};

/// The gradients of an adapter's operands. d(t, v) is that of a product as the products of the backward take it, and
/// exact(t, v) unrounded.
template <typename Gradient, typename Exact>
Outputs adapter_gradients(const Case& c, const Gradient& d, const Exact& exact) {
  const std::size_t first = adapter_inputs(c), first_output = adapter_outputs(c);
  const std::int64_t tokens = c.in[0].shape[0], hidden = c.in[0].shape[1];
  const std::int64_t vocabulary = c.in[1].shape.elements() / hidden;
  Outputs out(kAdapterOutputs);
  if (c.in[first].present) {
    const Operand &branch = c.in[first], &factor = c.in[first + 1];
    const std::int64_t rank = branch.shape[1];
    out[0] = elements(tokens * rank, [&](std::int64_t i) {
      return sum(vocabulary, [&](std::int64_t v) { return d(i / rank, v) * factor[v * rank + i % rank]; });
    });
    out[1] = elements(vocabulary * rank, [&](std::int64_t i) {
      return initial(c, first_output + 1, i) +
             sum(tokens, [&](std::int64_t t) { return d(t, i / rank) * branch[t * rank + i % rank]; });
    });
  }
  const auto ids = c.attributes.list("row_ids"), places = c.attributes.list("row_places");
  out[2].resize(ids.size() * static_cast<std::size_t>(hidden));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = static_cast<std::int64_t>(ids[i]), row = static_cast<std::int64_t>(places[i]);
    for (std::int64_t h = 0; h < hidden; ++h) {
      out[2][static_cast<std::size_t>(row * hidden + h)] =
          initial(c, first_output + 2, row * hidden + h) +
          sum(tokens, [&](std::int64_t t) { return d(t, id) * c.in[0][t * hidden + h]; });
    }
  }
  const Operand& norms = c.in[first + 4];
  if (!norms.present) return out;
  std::vector<LogitRow> rows;
  for (std::int64_t t = 0; t < tokens; ++t) rows.emplace_back(c, t);
  out[3] = elements(vocabulary, [&](std::int64_t v) {
    return initial(c, first_output + 3, v) + sum(tokens, [&](std::int64_t t) {
             return exact(t, v) / magnitude_of(c, v) * rows[static_cast<std::size_t>(t)].product(v) / norms[v];
           });
  });
  return out;
}

/// Adapters put into a case. `workspace_output` is where its logits lie, and `dweight` the gradient of the weight,
/// which is frozen then; 0: the operation has no gradients.
struct AdapterCase {
  std::size_t workspace_output, dweight = 0;

  /// One of rank 3.
  Case with_branch(Precision p, Case c) const {
    c.name += " branch";
    const std::size_t first = adapter_inputs(c);
    c.in[first] = random(p.activation, {c.in[0].shape[0], 3}, 7);
    c.in[first + 1] = random(p.activation, {c.in[1].shape[0], 3}, 8, 0.3);
    if (dweight == 0) return c;
    c.out[dweight] = absent();
    c.out[adapter_outputs(c)] = output(p.activation, c.in[first].shape);
    set_gradient(p, c, 1, c.in[first + 1].shape);
    return c;
  }

  /// The same with DoRA's magnitudes.
  Case with_magnitudes(Precision p, Case c) const {
    c = with_branch(p, std::move(c));
    c.name += " magnitudes";
    const std::int64_t vocabulary = c.in[1].shape[0];
    Operand &magnitude = c.in[adapter_inputs(c) + 3], &norms = c.in[adapter_inputs(c) + 4];
    magnitude = random(p.activation, {vocabulary}, 12);
    norms = random(p.single, {vocabulary}, 13);
    for (double& value : magnitude.values) value = round_to(p.activation, 0.25 + std::abs(value));
    for (double& value : norms.values) value = round_to(p.single, 0.5 + std::abs(value));
    c.out[workspace_output] = workspace({2 * c.attributes.integer("chunk"), vocabulary});
    if (dweight != 0) set_gradient(p, c, 3, {vocabulary});
    return c;
  }

  /// Three rows that stand for some of the weight's.
  Case with_rows(Precision p, Case c) const {
    c.name += " rows";
    const std::int64_t hidden = c.in[0].shape[1], vocabulary = c.in[1].shape.elements() / hidden;
    c.in[adapter_inputs(c) + 2] = random(p.activation, {3, hidden}, 10, 0.3);
    c.attributes.set("row_ids", std::vector<double>{0, 5, static_cast<double>(vocabulary - 1)});
    c.attributes.set("row_places", std::vector<double>{2, 0, 1});
    const std::int64_t dx = p.activation == DType::f32 ? 0 : hidden;
    c.out[workspace_output] = workspace({c.attributes.integer("chunk"), vocabulary + 3 + dx});
    if (dweight == 0) return c;
    c.out[dweight] = absent();
    set_gradient(p, c, 2, {3, hidden});
    return c;
  }

 private:
  static void set_gradient(Precision p, Case& c, std::size_t i, Shape shape) {
    const auto mode = static_cast<Accumulate>(c.attributes.integer("accumulate"));
    c.out[adapter_outputs(c) + i] = gradient_output(p, shape, mode, c.scalars.first_micro_batch, 9 + i);
  }
};

}  // namespace heddle::conformance
