// Activation functions and their derivatives on vectors of f32, shared by glu and activation. Per-target include guard,
// as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_ACTIVATION_INL_H_
#undef HEDDLE_KERNELS_CPU_ACTIVATION_INL_H_
#else
#define HEDDLE_KERNELS_CPU_ACTIVATION_INL_H_
#endif

#include "kernels/cpu/math-inl.h"
#include "ops/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// x * sigmoid(x)  (Hendrycks, Gimpel 2016, arXiv:1606.08415; Elfwing et al. 2017, arXiv:1702.03118)
struct Silu {
  static HWY_INLINE void evaluate(FloatTag d, FloatVector x, FloatVector& value, FloatVector& derivative) {
    FloatVector s, slope;
    logistic(d, x, s, slope);
    value = hn::Mul(x, s);
    derivative = hn::MulAdd(x, slope, s);
  }
};

/// x * Phi(x), Phi the standard normal distribution: PyTorch's "gelu", with erf  (arXiv:1606.08415)
struct Gelu {
  static HWY_INLINE void evaluate(FloatTag d, FloatVector x, FloatVector& value, FloatVector& derivative) {
    FloatVector distribution, density;
    normal(d, x, distribution, density);
    value = hn::Mul(x, distribution);
    derivative = hn::MulAdd(x, density, distribution);
  }
};

/// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) = x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)): "gelu_new",
/// "gelu_pytorch_tanh". The logistic form does not cancel for negative x.
struct GeluTanh {
  static HWY_INLINE void evaluate(FloatTag d, FloatVector x, FloatVector& value, FloatVector& derivative) {
    constexpr float kLinear = 1.59576912160573071f;  // 2 sqrt(2/pi)
    constexpr float kCubic = 1.59576912160573071f * 0.044715f;
    const auto square = hn::Mul(x, x);
    FloatVector s, slope;
    logistic(d, hn::Mul(x, hn::MulAdd(square, hn::Set(d, kCubic), hn::Set(d, kLinear))), s, slope);
    value = hn::Mul(x, s);
    // Where x^2 overflows the slope is zero; infinity times zero would be NaN.
    const auto inner = hn::MulAdd(hn::Min(square, hn::Set(d, 1e4f)), hn::Set(d, 3.0f * kCubic), hn::Set(d, kLinear));
    derivative = hn::MulAdd(x, hn::Mul(slope, inner), s);
  }
};

struct Relu {
  static HWY_INLINE void evaluate(FloatTag d, FloatVector x, FloatVector& value, FloatVector& derivative) {
    const auto off = hn::Le(x, hn::Zero(d));  // false for NaN, which passes
    value = hn::IfThenElse(off, hn::Zero(d), x);
    derivative = hn::IfThenElse(off, hn::Zero(d), hn::Set(d, 1.0f));
  }
};

/// Calls f(Silu{}), f(Gelu{}), ... as the attribute "activation" says.
template <typename Function>
void with_activation(const Attributes& attributes, const Function& f) {
  switch (static_cast<Activation>(attributes.integer("activation"))) {
    case Activation::silu: return f(Silu{});
    case Activation::gelu: return f(Gelu{});
    case Activation::gelu_tanh: return f(GeluTanh{});
    case Activation::relu: return f(Relu{});
  }
  fail("activation {} is unknown; expected 0 to 3", attributes.integer("activation"));
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
