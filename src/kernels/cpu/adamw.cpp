// AdamW  (Loshchilov, Hutter 2017, arXiv:1711.05101), as PyTorch's torch.optim.AdamW computes it for one tensor:
//   w *= 1 - lr * weight_decay;  m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g g
//   w -= (lr / bias_correction1) * m / (sqrt(v) / sqrt(bias_correction2) + epsilon)
// The scalars are formed in double and rounded once, the elements computed in f32 in PyTorch's order and without fused
// multiply-add: each operation rounds correctly, so that the result is the same on every instruction set. lr is `rate`
// times the run's.
// One pass over memory, which bounds it: reads g (in any type), w, m, v; writes w, m, v and, beside a master, the
// parameter in A.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adamw.cpp"
#include <hwy/foreach_target.h>

#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

void adamw(const KernelCall& call) {
  const Attributes& attributes = call.attributes;
  const double lr = learning_rate(call);
  const double beta1 = attributes.real("beta1"), beta2 = attributes.real("beta2");
  const float factor = gradient_factor(call), decay = kept_by_decay(call, lr);
  const auto one_minus_beta1 = static_cast<float>(1.0 - beta1);
  const auto kept = static_cast<float>(beta2), one_minus_beta2 = static_cast<float>(1.0 - beta2);
  const auto sqrt_bias_correction2 = static_cast<float>(std::sqrt(call.scalars.bias_correction2));
  const auto epsilon = static_cast<float>(attributes.real("epsilon"));
  const auto minus_step = static_cast<float>(-lr / call.scalars.bias_correction1);
  auto *exp_avg = call.out[2].as<float>(), *exp_avg_sq = call.out[3].as<float>();
  // The processor's own prefetching stops at the end of a page. In elements; may lie beyond the tensor.
  constexpr std::int64_t kAhead = 128;
  const auto step_with = [&](const auto* gradient) HWY_ATTR {
    step_weights(call, [&, gradient](std::int64_t i, auto part, FloatVector w) HWY_ATTR {
      const FloatTag d;
      __builtin_prefetch(gradient + i + kAhead);
      __builtin_prefetch(exp_avg + i + kAhead);
      __builtin_prefetch(exp_avg_sq + i + kAhead);
      const auto g = hn::Mul(load(d, gradient + i, part), hn::Set(d, factor));
      auto m = load(d, exp_avg + i, part);
      auto v = load(d, exp_avg_sq + i, part);
      m = hn::Add(m, hn::Mul(hn::Set(d, one_minus_beta1), hn::Sub(g, m)));
      v = hn::Add(hn::Mul(v, hn::Set(d, kept)), hn::Mul(hn::Mul(hn::Set(d, one_minus_beta2), g), g));
      store(m, d, exp_avg + i, part);
      store(v, d, exp_avg_sq + i, part);
      const auto root = hn::Div(hn::Sqrt(v), hn::Set(d, sqrt_bias_correction2));
      const auto step = hn::Div(hn::Mul(hn::Set(d, minus_step), m), hn::Add(root, hn::Set(d, epsilon)));
      return hn::Add(hn::Mul(w, hn::Set(d, decay)), step);
    });
  };
  with_element_type(call.in[0].dtype, [&](auto* type) HWY_ATTR {
    step_with(call.in[0].as<const std::remove_pointer_t<decltype(type)>>());
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
