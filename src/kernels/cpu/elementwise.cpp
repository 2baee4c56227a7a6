// add: y = a + b. scale: y = factor * x. softcap: y = c tanh(x / c)  (Gemma Team 2024, arXiv:2408.00118).
// split, concat: columns of one matrix to several and back. select_last: the last row. All overwrite, one pass each.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// y = f(x) over a whole tensor.
template <typename Function>
void map_tensor(const TensorView& x, const TensorView& y, const Function& f) {
  with_element_type(x.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    for_each_block(x.elements(), kElementsPerBlock, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
      map(count, x.as<const A>() + begin, y.as<A>() + begin, f);
    });
  });
}

void add(const KernelCall& call) {
  const TensorView& a = call.in[0];
  const TensorView& b = call.in[1];
  const TensorView& y = call.out[0];
  with_element_type(a.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    for_each_block(a.elements(), kElementsPerBlock, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
      map(count, a.as<const A>() + begin, b.as<const A>() + begin, y.as<A>() + begin,
          [](FloatTag, FloatVector u, FloatVector v) HWY_ATTR { return hn::Add(u, v); });
    });
  });
}

void scale(const KernelCall& call) {
  const auto factor = static_cast<float>(call.attributes.real("factor", 1.0));
  map_tensor(call.in[0], call.out[0],
             [factor](FloatTag d, FloatVector v) HWY_ATTR { return hn::Mul(hn::Set(d, factor), v); });
}

void softcap(const KernelCall& call) {
  const auto cap = static_cast<float>(call.attributes.real("cap", 0.0));
  map_tensor(call.in[0], call.out[0], [cap](FloatTag d, FloatVector v) HWY_ATTR {
    return hn::Mul(hn::Set(d, cap), tanh(d, hn::Div(v, hn::Set(d, cap))));
  });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(add);
HWY_EXPORT(scale);
HWY_EXPORT(softcap);

void add(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(add)(call); }
void scale(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(scale)(call); }
void softcap(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(softcap)(call); }

namespace {

std::int64_t row_bytes(const TensorView& view) {
  return static_cast<std::int64_t>(dtype_bytes(view.dtype)) * view.shape.back();
}

}  // namespace

void split(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const std::int64_t stride = row_bytes(x);
  for_each_block(x.shape.rows(), rows_per_block(x.shape.back()), [&](std::int64_t begin, std::int64_t count) {
    for (std::int64_t row = begin; row < begin + count; ++row) {
      const auto* from = x.as<const std::byte>() + row * stride;
      for (const TensorView& y : call.out) {
        const std::int64_t bytes = row_bytes(y);
        std::memcpy(y.as<std::byte>() + row * bytes, from, static_cast<std::size_t>(bytes));
        from += bytes;
      }
    }
  });
}

void concat(const KernelCall& call) {
  const TensorView& y = call.out[0];
  const std::int64_t stride = row_bytes(y);
  for_each_block(y.shape.rows(), rows_per_block(y.shape.back()), [&](std::int64_t begin, std::int64_t count) {
    for (std::int64_t row = begin; row < begin + count; ++row) {
      auto* to = y.as<std::byte>() + row * stride;
      for (const TensorView& x : call.in) {
        const std::int64_t bytes = row_bytes(x);
        std::memcpy(to, x.as<const std::byte>() + row * bytes, static_cast<std::size_t>(bytes));
        to += bytes;
      }
    }
  });
}

void select_last(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const std::int64_t bytes = row_bytes(x);
  std::memcpy(call.out[0].data, x.as<const std::byte>() + (x.shape.rows() - 1) * bytes,
              static_cast<std::size_t>(bytes));
}

}  // namespace heddle::cpu
#endif
