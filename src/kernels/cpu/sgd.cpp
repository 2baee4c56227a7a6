// Stochastic gradient descent, as torch.optim.SGD computes it for one tensor, with decoupled decay (SGDW: Loshchilov,
// Hutter 2019, arXiv:1711.05101):
//   b = momentum b + (1 - dampening) g, in the first step b = g;  d = g + momentum b with nesterov, else b;
//   w = (1 - lr * weight_decay) w - lr d
// Without momentum there is no b, and d = g: then the decay is also what SGD does that adds it to the gradient.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/sgd.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

void sgd(const KernelCall& call) {
  const Attributes& attributes = call.attributes;
  const double lr = learning_rate(call);
  const float factor = gradient_factor(call), decay = kept_by_decay(call, lr);
  const auto momentum = static_cast<float>(attributes.real("momentum"));
  const auto kept = static_cast<float>(1.0 - attributes.real("dampening"));
  const auto minus_lr = static_cast<float>(-lr);
  const bool is_nesterov = attributes.integer("nesterov") != 0, is_first = call.scalars.update == 1;
  const auto* gradient = call.in[0].as<const float>();
  auto* buffer = call.out[2].as<float>();
  step_weights(call, [&](std::int64_t i, auto part, FloatVector w) HWY_ATTR {
    const FloatTag d;
    auto g = hn::Mul(load(d, gradient + i, part), hn::Set(d, factor));
    if (buffer != nullptr) {
      auto b = g;
      if (!is_first) {
        b = hn::Mul(load(d, buffer + i, part), hn::Set(d, momentum));
        b = hn::Add(b, hn::Mul(g, hn::Set(d, kept)));
      }
      store(b, d, buffer + i, part);
      g = is_nesterov ? hn::Add(g, hn::Mul(b, hn::Set(d, momentum))) : b;
    }
    return hn::Add(hn::Mul(w, hn::Set(d, decay)), hn::Mul(g, hn::Set(d, minus_lr)));
  });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(sgd);

void sgd(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(sgd)(call); }

}  // namespace heddle::cpu
#endif
