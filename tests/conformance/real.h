#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/dtype.h"

namespace heddle::conformance {

/// Unit roundoff: the largest relative error of rounding to a type.
double unit_roundoff(DType type);
/// Smallest positive number of a type: the absolute error that underflow may add.
double smallest_subnormal(DType type);
/// The nearest value of a type; f64 leaves it.
double round_to(DType type, double value);

/// A number in double beside a bound on the error that the same computation has in f32: running error analysis
/// (Wilkinson 1963, "Rounding errors in algebraic processes"). References are written on it as on double, and the bound
/// takes the place of a hand-made tolerance.
class Real {
 public:
  Real() = default;
  Real(double number) : value(number) {}  // NOLINT: exact, so that constants and operands read as themselves
  Real(double number, double bound) : value(number), error(bound) {}

  double value = 0.0;
  double error = 0.0;
};

inline constexpr double kUnit = 0x1p-24;  // unit roundoff of f32

inline Real operator-(Real a) { return {-a.value, a.error}; }
inline Real operator+(Real a, Real b) {
  const double value = a.value + b.value;
  return {value, a.error + b.error + kUnit * std::abs(value)};
}
inline Real operator-(Real a, Real b) { return a + -b; }
inline Real operator*(Real a, Real b) {
  const double value = a.value * b.value;
  return {value,
          std::abs(a.value) * b.error + std::abs(b.value) * a.error + a.error * b.error + kUnit * std::abs(value)};
}
inline Real operator/(Real a, Real b) {
  const double value = a.value / b.value;
  return {value, (a.error + std::abs(value) * b.error) / std::max(std::abs(b.value) - b.error, 0x1p-1000) +
                     kUnit * std::abs(value)};
}

/// Vector implementations of these are allowed four units in the last place, eight unit roundoffs.
inline constexpr double kFunctionError = 8 * kUnit;
inline Real sqrt(Real a) {
  const double value = std::sqrt(a.value);
  return {value, (value > 0 ? a.error / (2 * value) : std::sqrt(a.error)) + kUnit * value};
}
inline Real exp(Real a) {
  const double value = std::exp(a.value);
  return {value, value * (std::expm1(a.error) + kFunctionError)};
}
inline Real log(Real a) {
  return {std::log(a.value),
          a.error / std::max(a.value - a.error, 0x1p-1000) + kFunctionError * std::abs(std::log(a.value))};
}
inline Real tanh(Real a) {
  const double value = std::tanh(a.value);
  const double nearest = std::tanh(std::max(std::abs(a.value) - a.error, 0.0));  // where the slope is greatest
  return {value, (1.0 - nearest * nearest) * a.error + kFunctionError * std::abs(value)};
}
inline Real erf(Real a) {
  const double value = std::erf(a.value);
  const double nearest = std::max(std::abs(a.value) - a.error, 0.0);
  return {value, 1.1283791670955126 * std::exp(-nearest * nearest) * a.error + kFunctionError * std::abs(value)};
}
/// a as it is after a trip through memory of the given type.
inline Real stored(DType type, Real a) { return {a.value, a.error + unit_roundoff(type) * std::abs(a.value)}; }

/// Sum of term(i) for i in [0, n), in any order. Its rounding errors are bounded by n u sum|term|, and by
/// 6 sqrt(n) u sum|term| but for a chance of 3e-8 (Higham, Mary 2019, "A new approach to probabilistic rounding error
/// analysis", SIAM J. Sci. Comput. 41(5), theorem 2.4 with lambda = 6).
template <typename Term>
Real sum(std::int64_t n, const Term& term) {
  Real total;
  double magnitude = 0.0;
  for (std::int64_t i = 0; i < n; ++i) {
    const Real x = term(i);
    total.value += x.value;
    total.error += x.error;
    magnitude += std::abs(x.value);
  }
  const auto count = static_cast<double>(n);
  total.error += std::min(count, 6 * std::sqrt(count)) * kUnit * magnitude;
  return total;
}

}  // namespace heddle::conformance
