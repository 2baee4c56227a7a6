// Lion  (Chen et al. 2023, arXiv:2302.06675), as bitsandbytes and DeepSpeed compute it:
//   w *= 1 - lr * weight_decay;  w -= lr * sign(beta1 m + (1 - beta1) g);  m = beta2 m + (1 - beta2) g
// Elements in f32 without fused multiply-add: the same bits on every instruction set.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/lion.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

void lion(const KernelCall& call) {
  const double b1 = call.attributes.real("beta1"), b2 = call.attributes.real("beta2");
  const double lr = learning_rate(call);
  const float factor = gradient_factor(call), decay = kept_by_decay(call, lr);
  const auto beta1 = static_cast<float>(b1), one_minus_beta1 = static_cast<float>(1.0 - b1);
  const auto beta2 = static_cast<float>(b2), one_minus_beta2 = static_cast<float>(1.0 - b2);
  const auto minus_lr = static_cast<float>(-lr);
  const auto* gradient = call.in[0].as<const float>();
  auto* exp_avg = call.out[2].as<float>();
  step_weights(call, [&](std::int64_t i, auto part, FloatVector w) HWY_ATTR {
    const FloatTag d;
    const auto g = hn::Mul(load(d, gradient + i, part), hn::Set(d, factor));
    const auto m = load(d, exp_avg + i, part);
    const auto mixed = hn::Add(hn::Mul(m, hn::Set(d, beta1)), hn::Mul(g, hn::Set(d, one_minus_beta1)));
    const auto next = hn::Add(hn::Mul(m, hn::Set(d, beta2)), hn::Mul(g, hn::Set(d, one_minus_beta2)));
    store(next, d, exp_avg + i, part);
    const auto is_zero = hn::Eq(mixed, hn::Zero(d));
    const auto step = hn::IfThenZeroElse(is_zero, hn::Mul(hn::CopySign(hn::Set(d, 1.0f), mixed), hn::Set(d, minus_lr)));
    return hn::Add(hn::Mul(w, hn::Set(d, decay)), step);
  });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(lion);

void lion(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(lion)(call); }

}  // namespace heddle::cpu
#endif
