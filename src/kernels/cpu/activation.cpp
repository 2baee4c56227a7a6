// y = act(x); dx = dy * act'(x). Both overwrite. One pass: reads and writes each element once.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/activation.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/activation-inl.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

void activation(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const TensorView& y = call.out[0];
  with_element_type(x.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    with_activation(call.attributes, [&](auto function) HWY_ATTR {
      using F = decltype(function);
      for_each_block(x.elements(), kElementsPerBlock, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
        map(count, x.as<const A>() + begin, y.as<A>() + begin, [](FloatTag d, FloatVector v) HWY_ATTR {
          FloatVector value, derivative;
          F::evaluate(d, v, value, derivative);
          return value;
        });
      });
    });
  });
}

void activation_backward(const KernelCall& call) {
  const TensorView& dy = call.in[0];
  const TensorView& x = call.in[1];
  const TensorView& dx = call.out[0];
  with_element_type(x.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    with_activation(call.attributes, [&](auto function) HWY_ATTR {
      using F = decltype(function);
      for_each_block(x.elements(), kElementsPerBlock, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
        map(count, dy.as<const A>() + begin, x.as<const A>() + begin, dx.as<A>() + begin,
            [](FloatTag d, FloatVector gradient, FloatVector v) HWY_ATTR {
              FloatVector value, derivative;
              F::evaluate(d, v, value, derivative);
              return hn::Mul(gradient, derivative);
            });
      });
    });
  });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(activation);
HWY_EXPORT(activation_backward);

void activation(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(activation)(call); }
void activation_backward(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(activation_backward)(call); }

}  // namespace heddle::cpu
#endif
