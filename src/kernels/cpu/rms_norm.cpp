// y = s / sqrt(mean(s^2) + epsilon) * (weight + weight_offset), over the last dimension; s = x, or x + residual rounded
// to A  (Zhang, Sennrich 2019, arXiv:1910.07467). Overwrites y, inv_rms and sum.
// Backward, with n = s * inv_rms and g = dy * (weight + weight_offset):
//   dx = inv_rms * (g - n * mean(g * n)) + addend, overwritten; dweight = sum over rows of dy * n, as `accumulate`
//   says.
// A row is read from memory once and stays in the first-level cache for the second look.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cpp"
#include <hwy/foreach_target.h>

#include <cmath>

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// One row: y and inv_rms from s.
template <typename A>
HWY_INLINE void normalize_row(std::int64_t n, const A* s, const A* weight, float offset, double epsilon, A* y,
                              float& inv_rms) {
  const FloatTag d;
  RowSum<float> squares;
  for_each_summed_vector(n, [&](std::int64_t i, int v, auto part) HWY_ATTR {
    const auto value = load(d, s + i, part);
    squares[v] = hn::MulAdd(value, value, squares[v]);
  });
  const double mean_square = static_cast<double>(squares.total()) / static_cast<double>(n);
  inv_rms = static_cast<float>(1.0 / std::sqrt(mean_square + epsilon));
  const float factor = inv_rms;
  for_each_vector(n, [&](std::int64_t i, auto part) HWY_ATTR {
    const auto w = hn::Add(load(d, weight + i, part), hn::Set(d, offset));
    store(hn::Mul(hn::Mul(load(d, s + i, part), hn::Set(d, factor)), w), d, y + i, part);
  });
}

void rms_norm(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const TensorView& weight = call.in[1];
  const TensorView& residual = call.in[2];
  const TensorView& y = call.out[0];
  const TensorView& inv_rms = call.out[1];
  const TensorView& sum = call.out[2];
  HEDDLE_CHECK(residual.present() == sum.present());
  const double epsilon = call.attributes.real("epsilon");
  const auto offset = static_cast<float>(call.attributes.real("weight_offset"));
  const std::int64_t hidden = x.shape.back();
  with_element_type(x.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    for_each_block(x.shape.rows(), rows_per_block(hidden), [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
      for (std::int64_t row = begin; row < begin + count; ++row) {
        const A* s = x.as<const A>() + row * hidden;
        if (residual.present()) {
          add_residual(hidden, s, residual.as<const A>() + row * hidden, sum.as<A>() + row * hidden);
          s = sum.as<const A>() + row * hidden;
        }
        normalize_row(hidden, s, weight.as<const A>(), offset, epsilon, y.as<A>() + row * hidden,
                      inv_rms.as<float>()[row]);
      }
    });
  });
}

/// One row: dx, and its share of dweight added to `partial`. addend may be null.
template <typename A>
HWY_INLINE void normalize_row_backward(std::int64_t n, const A* dy, const A* x, const A* weight, float offset,
                                       float inv_rms, const A* addend, A* dx, float* partial) {
  const FloatTag d;
  RowSum<float> products;  // g * x
  for_each_summed_vector(n, [&](std::int64_t i, int v, auto part) HWY_ATTR {
    const auto w = hn::Add(load(d, weight + i, part), hn::Set(d, offset));
    products[v] = hn::MulAdd(hn::Mul(load(d, dy + i, part), w), load(d, x + i, part), products[v]);
  });
  const double inv = inv_rms;
  const auto mean = static_cast<float>(inv * static_cast<double>(products.total()) / static_cast<double>(n));
  for_each_vector(n, [&](std::int64_t i, auto part) HWY_ATTR {
    const auto factor = hn::Set(d, inv_rms);
    const auto gradient = load(d, dy + i, part);
    const auto normalized = hn::Mul(load(d, x + i, part), factor);
    store(hn::MulAdd(gradient, normalized, load(d, partial + i, part)), d, partial + i, part);
    const auto w = hn::Add(load(d, weight + i, part), hn::Set(d, offset));
    const auto centered = hn::NegMulAdd(normalized, hn::Set(d, mean), hn::Mul(gradient, w));
    auto result = hn::Mul(centered, factor);
    if (addend != nullptr) result = hn::Add(result, load(d, addend + i, part));
    store(result, d, dx + i, part);
  });
}

void rms_norm_backward(const KernelCall& call) {
  const TensorView& dy = call.in[0];
  const TensorView& x = call.in[1];
  const TensorView& weight = call.in[2];
  const TensorView& inv_rms = call.in[3];
  const TensorView& addend = call.in[4];
  const TensorView& dx = call.out[0];
  const TensorView& dweight = call.out[1];
  auto* workspace = call.out[2].as<float>();
  const auto offset = static_cast<float>(call.attributes.real("weight_offset"));
  const std::int64_t hidden = x.shape.back();
  const std::int64_t rows = x.shape.rows();
  with_element_type(x.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    for_each_block(rows, kRowsPerPartialSum, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
      float* partial = workspace + begin / kRowsPerPartialSum * hidden;
      std::memset(partial, 0, static_cast<std::size_t>(hidden) * sizeof(float));
      for (std::int64_t row = begin; row < begin + count; ++row) {
        const std::int64_t at = row * hidden;
        normalize_row_backward(hidden, dy.as<const A>() + at, x.as<const A>() + at, weight.as<const A>(), offset,
                               inv_rms.as<const float>()[row], addend.present() ? addend.as<const A>() + at : nullptr,
                               dx.as<A>() + at, partial);
      }
    });
  });
  if (!dweight.present()) return;  // a frozen weight
  add_partial_sums(workspace, (rows + kRowsPerPartialSum - 1) / kRowsPerPartialSum, hidden, adds(call),
                   dweight.as<float>());
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(rms_norm);
HWY_EXPORT(rms_norm_backward);

void rms_norm(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(rms_norm)(call); }
void rms_norm_backward(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(rms_norm_backward)(call); }

}  // namespace heddle::cpu
#endif
