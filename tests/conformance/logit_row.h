#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "operation.h"
#include "real.h"

namespace heddle::conformance {

inline constexpr double kIgnored = -100.0;

/// weight[v, h] of a weight [V, H], or [H, V] where the attribute says so. Beside activations in bf16 a quantized one
/// is rounded to that.
inline double weight_at(const Case& c, std::int64_t v, std::int64_t h) {
  const Operand& weight = c.in[1];
  const std::int64_t hidden = c.in[0].shape[1], vocabulary = weight.shape.elements() / hidden;
  const double value = weight[c.attributes.integer("transposed") != 0 ? h * vocabulary + v : v * hidden + h];
  return c.in[0].dtype == DType::bf16 ? round_to(DType::bf16, value) : value;
}

/// d as the products take it: beside activations in bf16 rounded to that.
inline Real taken(const Case& c, const Real& d) { return c.in[0].dtype == DType::bf16 ? stored(DType::bf16, d) : d; }

/// Row t of the logits after scale and cap, and its softmax; the fast kernels never hold all rows.
class LogitRow {
 public:
  /// `addend` gives what is added to the product of each id.
  LogitRow(const Case& c, std::int64_t t, const std::function<Real(std::int64_t)>& addend = nullptr) {
    const Operand& x = c.in[0];
    const std::int64_t hidden = x.shape[1], vocabulary = c.in[1].shape.elements() / hidden;
    const double cap = c.attributes.real("softcap"), scale = c.attributes.real("logit_scale", 1.0);
    double greatest = -1e300;
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      const Real product = sum(hidden, [&](std::int64_t h) { return Real(x[t * hidden + h]) * weight_at(c, v, h); });
      const Real scaled = stored(DType::f32, scale) * (addend ? product + addend(v) : product);
      const Real z = cap == 0.0 ? scaled : cap * tanh(scaled / cap);
      logits_.push_back(z);
      slopes_.push_back(stored(DType::f32, scale) * (cap == 0.0 ? Real(1.0) : 1.0 - (z / cap) * (z / cap)));
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
  /// d loss / d product, before the scale and the cap.
  Real gradient(std::int64_t v, std::int64_t label) const {
    const Real p = exp(logit(v) - log_sum_);
    const double target = (v == label ? 1.0 - smoothing_ : 0.0) + smoothing_ / static_cast<double>(logits_.size());
    return (p - target + 2.0 * z_loss_ * (log_sum_ * p)) * slopes_[static_cast<std::size_t>(v)];
  }

 private:
  Real logit(std::int64_t v) const { return logits_[static_cast<std::size_t>(v)]; }
  std::vector<Real> logits_, slopes_;
  Real log_sum_;
  double smoothing_ = 0.0, z_loss_ = 0.0;
};

}  // namespace heddle::conformance
