// The step along a direction that was made of a whole tensor:  w = (1 - lr * weight_decay) w - lr * rate * direction
// In f32 without fused multiply-add, so that the same bits come out whoever holds which elements.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/descend.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

void descend(const KernelCall& call) {
  const float decay = kept_by_decay(call, call.scalars.learning_rate);
  const auto minus_step = static_cast<float>(-learning_rate(call));
  const auto* direction = call.in[0].as<const float>();
  step_weights(call, [&](std::int64_t i, auto part, FloatVector w) HWY_ATTR {
    const FloatTag d;
    return hn::Add(hn::Mul(w, hn::Set(d, decay)), hn::Mul(load(d, direction + i, part), hn::Set(d, minus_step)));
  });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(descend);

void descend(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(descend)(call); }

}  // namespace heddle::cpu
#endif
