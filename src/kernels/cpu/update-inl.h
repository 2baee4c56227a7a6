// What the updates of an optimizer step share: the gradient's factor, and weights in f32 beside their copy in the
// activation type. Per-target include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_UPDATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_UPDATE_INL_H_
#undef HEDDLE_KERNELS_CPU_UPDATE_INL_H_
#else
#define HEDDLE_KERNELS_CPU_UPDATE_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/simd-inl.h"
#include "ops/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// What multiplies each gradient: in[1], where it is there and not zero.
inline float gradient_factor(const KernelCall& call) {
  const float factor = call.in[1].present() ? *call.in[1].as<const float>() : 0.0f;
  return factor != 0.0f ? factor : 1.0f;
}

/// The step's learning rate for this tensor: `rate` times the run's.
inline double learning_rate(const KernelCall& call) {
  return call.scalars.learning_rate * call.attributes.real("rate", 1.0);
}

/// 1 - lr * weight_decay: what is left of a weight before its step.
inline float kept_by_decay(const KernelCall& call, double lr) {
  return static_cast<float>(1.0 - lr * call.attributes.real("weight_decay"));
}

/// w = step(i, part, w) for each vector of elements from i on, w in the master weights out[1], or in the parameter
/// out[0] where there are none; else the parameter gets w rounded. A learning rate of zero leaves every bit of w: sums
/// with a zero would turn -0 into 0, and with a step that is not finite into NaN. `step` updates states all the same.
template <typename Step>
HWY_INLINE void step_weights(const KernelCall& call, const Step& step) {
  const TensorView& parameter = call.out[0];
  const bool has_master = call.out[1].present(), moves = learning_rate(call) != 0.0;
  HEDDLE_CHECK(has_master || parameter.dtype == DType::f32);
  auto* weights = has_master ? call.out[1].as<float>() : parameter.as<float>();
  with_element_type(parameter.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    A* copy = has_master ? parameter.as<A>() : nullptr;
    const std::int64_t elements = call.in[0].elements();
    for_each_block(elements, long_block(elements), [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
      const FloatTag d;
      for_each_vector(count, [&](std::int64_t offset, auto part) HWY_ATTR {
        const std::int64_t i = begin + offset;
        const auto w = load(d, weights + i, part);
        const auto stepped = step(i, part, w);
        if (moves) store(stepped, d, weights + i, part);
        if (copy != nullptr) store(moves ? stepped : w, d, copy + i, part);
      });
    });
  });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
