// AdamW  (Loshchilov, Hutter 2017, arXiv:1711.05101), as PyTorch's torch.optim.AdamW computes it for one tensor:
//   w *= 1 - lr * weight_decay;  m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g g
//   w -= (lr / bias_correction1) * m / (sqrt(v) / sqrt(bias_correction2) + epsilon)
// The scalars are formed in double and rounded once, the elements computed in f32 in PyTorch's order and without fused
// multiply-add: each operation rounds correctly, so that the result is the same on every instruction set.
// One pass over memory, which bounds it: reads g, w, m, v; writes w, m, v and, beside a master, the parameter in A.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cpp"
#include <hwy/foreach_target.h>

#include <cmath>

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

struct AdamwConstants {
  float factor;  // of the gradient
  float decay;   // 1 - lr * weight_decay
  float one_minus_beta1, beta2, one_minus_beta2;
  float sqrt_bias_correction2, epsilon;
  float minus_step;  // -lr / bias_correction1
  bool moves;        // lr is not zero: w + -0 * u would turn -0 into 0, and any u that is not finite into NaN
};

AdamwConstants constants_of(const KernelCall& call) {
  const Attributes& attributes = call.attributes;
  const double lr = call.scalars.learning_rate;
  const double beta1 = attributes.real("beta1"), beta2 = attributes.real("beta2");
  const float factor = call.in[1].present() ? *call.in[1].as<const float>() : 0.0f;
  AdamwConstants c{};
  c.factor = factor != 0.0f ? factor : 1.0f;
  c.decay = static_cast<float>(1.0 - lr * attributes.real("weight_decay"));
  c.one_minus_beta1 = static_cast<float>(1.0 - beta1);
  c.beta2 = static_cast<float>(beta2);
  c.one_minus_beta2 = static_cast<float>(1.0 - beta2);
  c.sqrt_bias_correction2 = static_cast<float>(std::sqrt(static_cast<double>(call.scalars.bias_correction2)));
  c.epsilon = static_cast<float>(attributes.real("epsilon"));
  c.minus_step = static_cast<float>(-lr / static_cast<double>(call.scalars.bias_correction1));
  c.moves = lr != 0.0;
  return c;
}

/// n elements. `master` holds the weights; `parameter` gets them rounded unless it is null.
template <typename A>
HWY_INLINE void update(std::int64_t n, const AdamwConstants& c, const float* gradient, float* master, float* exp_avg,
                       float* exp_avg_sq, A* parameter) {
  const FloatTag d;
  for_each_vector(n, [&](std::int64_t i, auto part) HWY_ATTR {
    const auto g = hn::Mul(load(d, gradient + i, part), hn::Set(d, c.factor));
    auto m = load(d, exp_avg + i, part);
    auto v = load(d, exp_avg_sq + i, part);
    auto w = load(d, master + i, part);
    m = hn::Add(m, hn::Mul(hn::Set(d, c.one_minus_beta1), hn::Sub(g, m)));
    v = hn::Add(hn::Mul(v, hn::Set(d, c.beta2)), hn::Mul(hn::Mul(hn::Set(d, c.one_minus_beta2), g), g));
    store(m, d, exp_avg + i, part);
    store(v, d, exp_avg_sq + i, part);
    if (c.moves) {
      const auto root = hn::Div(hn::Sqrt(v), hn::Set(d, c.sqrt_bias_correction2));
      const auto step = hn::Div(hn::Mul(hn::Set(d, c.minus_step), m), hn::Add(root, hn::Set(d, c.epsilon)));
      w = hn::Add(hn::Mul(w, hn::Set(d, c.decay)), step);
      store(w, d, master + i, part);
    }
    if (parameter != nullptr) store(w, d, parameter + i, part);
  });
}

void adamw(const KernelCall& call) {
  const TensorView& gradient = call.in[0];
  const TensorView& parameter = call.out[0];
  const bool has_master = call.out[1].present();
  HEDDLE_CHECK(has_master || parameter.dtype == DType::f32);
  auto* master = has_master ? call.out[1].as<float>() : parameter.as<float>();
  auto* exp_avg = call.out[2].as<float>();
  auto* exp_avg_sq = call.out[3].as<float>();
  const AdamwConstants c = constants_of(call);
  with_element_type(parameter.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    for_each_block(gradient.elements(), kElementsPerBlock, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
      update(count, c, gradient.as<const float>() + begin, master + begin, exp_avg + begin, exp_avg_sq + begin,
             has_master ? parameter.as<A>() + begin : nullptr);
    });
  });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(adamw);

void adamw(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(adamw)(call); }

}  // namespace heddle::cpu
#endif
