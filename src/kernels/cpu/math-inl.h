// exp, tanh, the logistic function and the normal distribution on vectors of f32. Error bounds are stated in units in
// the last place (ulp) of an f32 result; tests/kernels/simd_test.cpp holds them against double over a sweep of all
// magnitudes. NaN gives NaN. Per-target include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_MATH_INL_H_
#undef HEDDLE_KERNELS_CPU_MATH_INL_H_
#else
#define HEDDLE_KERNELS_CPU_MATH_INL_H_
#endif

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// p 2^n for p in [0.5, 2] and a whole n in [-152, 129], rounded once; NaN where p is.
HWY_INLINE FloatVector times_power_of_two(FloatTag d, FloatVector p, FloatVector n) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  static_cast<void>(d);
  return FloatVector{_mm512_scalef_ps(p.raw, n.raw)};
#else
  // In two factors: 2^n alone would leave the range of normal numbers before the product does.
  const hn::RebindToSigned<FloatTag> integers;
  const auto exponent = hn::ConvertTo(integers, hn::IfThenElseZero(hn::Eq(n, n), n));  // NaN has no integer
  const auto half = hn::ShiftRight<1>(exponent);
  const auto bias = hn::Set(integers, 127);
  const auto scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
  return hn::Mul(hn::Mul(p, scale1), scale2);
#endif
}

/// x within [least, most]; NaN stays.
HWY_INLINE FloatVector clamp(FloatTag d, FloatVector x, float least, float most) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  // These return the second of two operands where one is NaN
  return hn::Min(hn::Set(d, most), hn::Max(hn::Set(d, least), x));
#else
  x = hn::IfThenElse(hn::Lt(x, hn::Set(d, least)), hn::Set(d, least), x);
  return hn::IfThenElse(hn::Gt(x, hn::Set(d, most)), hn::Set(d, most), x);
#endif
}

/// exp(x + correction) for |correction| below 0.1, where x + correction need not be a float; 2 ulp, subnormals
/// included. Range reduction and polynomial: expf of Cephes (Moshier 1989).
HWY_INLINE FloatVector exp_of_sum(FloatTag d, FloatVector x, FloatVector correction) {
  x = clamp(d, x, -105.0f, 89.0f);  // below the result is 0, above infinity
  const auto n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504088896341f)));
  // ln 2 = 0.693359375 - 2.12194440e-4; the first part times n is exact.
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::Add(hn::MulAdd(n, hn::Set(d, 2.12194440e-4f), r), correction);
  auto p = hn::MulAdd(hn::Set(d, 1.9875691500e-4f), r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  return times_power_of_two(d, p, n);
}

/// 2 ulp.
HWY_INLINE FloatVector exp(FloatTag d, FloatVector x) { return exp_of_sum(d, x, hn::Zero(d)); }

/// 2 ulp. Below 0.625 the odd polynomial of Cephes' tanhf, above it 1 - 2 / (exp(2|x|) + 1).
HWY_INLINE FloatVector tanh(FloatTag d, FloatVector x) {
  const auto magnitude = hn::Abs(x);
  const auto square = hn::Mul(x, x);
  auto p = hn::MulAdd(hn::Set(d, -5.70498872745e-3f), square, hn::Set(d, 2.06390887954e-2f));
  p = hn::MulAdd(p, square, hn::Set(d, -5.37397155531e-2f));
  p = hn::MulAdd(p, square, hn::Set(d, 1.33314422036e-1f));
  p = hn::MulAdd(p, square, hn::Set(d, -3.33332819422e-1f));
  const auto small = hn::MulAdd(hn::Mul(p, square), x, x);
  const auto one = hn::Set(d, 1.0f);
  const auto e = exp(d, hn::Add(magnitude, magnitude));
  const auto large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.625f)), small, hn::CopySign(large, x));
}

/// s = 1 / (1 + exp(-x)) and slope = s (1 - s), 3 and 5 ulp: neither cancels on either side.
HWY_INLINE void logistic(FloatTag d, FloatVector x, FloatVector& s, FloatVector& slope) {
  const auto one = hn::Set(d, 1.0f);
  const auto e = exp(d, hn::Neg(hn::Abs(x)));
  const auto upper = hn::Div(one, hn::Add(one, e));  // of |x|
  const auto lower = hn::Mul(e, upper);              // of -|x|
  s = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), lower, upper);
  slope = hn::Mul(lower, upper);
}

/// The standard normal distribution function and its density, 5 and 3 ulp, in the lower tail too, where 1 + erf would
/// cancel. tail(a) = exp(-a^2/2) P(u) / (a + 2.5) with u = (a - 2.5) / (a + 2.5); P interpolates at Chebyshev points
/// of [0, 14] in u, relative error 2e-8. a^2 is split in two, since the error of exp grows with that of its argument.
HWY_INLINE void normal(FloatTag d, FloatVector x, FloatVector& distribution, FloatVector& density) {
  const hn::RebindToUnsigned<FloatTag> words;
  const auto magnitude = hn::Abs(x);
  const auto a = hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 20.0f)), hn::Set(d, 20.0f), magnitude);
  const auto high = hn::BitCast(d, hn::And(hn::BitCast(words, a), hn::Set(words, 0xfffff000u)));  // square is exact
  const auto minus_half = hn::Set(d, -0.5f);
  const auto square = hn::Mul(hn::Mul(high, high), minus_half);
  const auto rest = hn::Mul(hn::Mul(hn::Sub(a, high), hn::Add(a, high)), minus_half);
  const auto e = exp_of_sum(d, square, rest);
  const auto reciprocal = hn::Div(hn::Set(d, 1.0f), hn::Add(a, hn::Set(d, 2.5f)));
  const auto u = hn::Mul(hn::Sub(a, hn::Set(d, 2.5f)), reciprocal);
  auto p = hn::MulAdd(hn::Set(d, -0.0001571075544f), u, hn::Set(d, -0.0003117024296f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.0006829994798f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.002524011232f));
  p = hn::MulAdd(p, u, hn::Set(d, -0.001599755176f));
  p = hn::MulAdd(p, u, hn::Set(d, -0.01638620069f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.009235586572f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.1319869802f));
  p = hn::MulAdd(p, u, hn::Set(d, -0.4336919919f));
  p = hn::MulAdd(p, u, hn::Set(d, 0.7066566598f));
  const auto tail = hn::Mul(e, hn::Mul(p, reciprocal));
  distribution = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.0f), tail));
  density = hn::Mul(e, hn::Set(d, 0.398942280401432678f));
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
