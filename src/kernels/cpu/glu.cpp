// Gated linear unit: y = act(gate) * up  (Shazeer 2020, arXiv:2002.05202). Overwrites y.
// Backward: dup = dy * act(gate), dgate = dy * up * act'(gate); overwrites both. One pass each.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/glu.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/activation-inl.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

void glu(const KernelCall& call) {
  const TensorView& gate = call.in[0];
  const TensorView& up = call.in[1];
  const TensorView& y = call.out[0];
  with_element_type(gate.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    with_activation(call.attributes, [&](auto function) HWY_ATTR {
      using F = decltype(function);
      for_each_block(gate.elements(), kElementsPerBlock, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
        map(count, gate.as<const A>() + begin, up.as<const A>() + begin, y.as<A>() + begin,
            [](FloatTag d, FloatVector g, FloatVector u) HWY_ATTR {
              FloatVector value, derivative;
              F::evaluate(d, g, value, derivative);
              return hn::Mul(value, u);
            });
      });
    });
  });
}

/// n elements. Outputs may be the same memory as inputs: a vector is read from all before any is written.
template <typename F, typename A>
HWY_INLINE void glu_gradients(std::int64_t n, const A* dy, const A* gate, const A* up, A* dgate, A* dup) {
  const FloatTag d;
  for_each_vector(n, [&](std::int64_t i, auto part) HWY_ATTR {
    const auto gradient = load(d, dy + i, part);
    const auto u = load(d, up + i, part);
    FloatVector value, derivative;
    F::evaluate(d, load(d, gate + i, part), value, derivative);
    store(hn::Mul(hn::Mul(gradient, u), derivative), d, dgate + i, part);
    store(hn::Mul(gradient, value), d, dup + i, part);
  });
}

void glu_backward(const KernelCall& call) {
  const TensorView& dy = call.in[0];
  const TensorView& gate = call.in[1];
  const TensorView& up = call.in[2];
  const TensorView& dgate = call.out[0];
  const TensorView& dup = call.out[1];
  with_element_type(gate.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    with_activation(call.attributes, [&](auto function) HWY_ATTR {
      using F = decltype(function);
      for_each_block(gate.elements(), kElementsPerBlock, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
        glu_gradients<F>(count, dy.as<const A>() + begin, gate.as<const A>() + begin, up.as<const A>() + begin,
                         dgate.as<A>() + begin, dup.as<A>() + begin);
      });
    });
  });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(glu);
HWY_EXPORT(glu_backward);

void glu(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(glu)(call); }
void glu_backward(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(glu_backward)(call); }

}  // namespace heddle::cpu
#endif
