// y = (s - mean(s)) / sqrt(variance(s) + epsilon) * weight + bias, over the last dimension; s = x, or x + residual
// rounded to A; the variance is that of the population, in two passes  (Ba et al. 2016, arXiv:1607.06450).
// Overwrites y, mean, inv_std and sum.
// Backward, with n = (s - mean) * inv_std and g = dy * weight:
//   dx = inv_std * (g - mean(g) - n * mean(g * n)) + addend, overwritten;
//   dweight = sum over rows of dy * n and dbias = sum over rows of dy, as `accumulate` says.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/layer_norm.cpp"
#include <hwy/foreach_target.h>

#include <cmath>

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

HWY_INLINE double mean_of(const RowSum<float>& sums, std::int64_t n) {
  return static_cast<double>(sums.total()) / static_cast<double>(n);
}

/// One row: y, mean and inv_std from s. bias may be null.
template <typename A>
HWY_INLINE void normalize_row(std::int64_t n, const A* s, const A* weight, const A* bias, double epsilon, A* y,
                              float& row_mean, float& row_inv_std) {
  const FloatTag d;
  RowSum<float> sums;
  for_each_summed_vector(
      n, [&](std::int64_t i, int v, auto part) HWY_ATTR { sums[v] = hn::Add(sums[v], load(d, s + i, part)); });
  const auto mean = static_cast<float>(mean_of(sums, n));
  RowSum<float> squares;
  for_each_summed_vector(n, [&](std::int64_t i, int v, auto part) HWY_ATTR {
    const auto difference = covered(d, hn::Sub(load(d, s + i, part), hn::Set(d, mean)), part);
    squares[v] = hn::MulAdd(difference, difference, squares[v]);
  });
  const auto inv_std = static_cast<float>(1.0 / std::sqrt(mean_of(squares, n) + epsilon));
  for_each_vector(n, [&](std::int64_t i, auto part) HWY_ATTR {
    const auto normalized = hn::Mul(hn::Sub(load(d, s + i, part), hn::Set(d, mean)), hn::Set(d, inv_std));
    const auto offset = bias != nullptr ? load(d, bias + i, part) : hn::Zero(d);
    store(hn::MulAdd(normalized, load(d, weight + i, part), offset), d, y + i, part);
  });
  row_mean = mean;
  row_inv_std = inv_std;
}

void layer_norm(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const TensorView& weight = call.in[1];
  const TensorView& bias = call.in[2];
  const TensorView& residual = call.in[3];
  const TensorView& y = call.out[0];
  const TensorView& mean = call.out[1];
  const TensorView& inv_std = call.out[2];
  const TensorView& sum = call.out[3];
  HEDDLE_CHECK(residual.present() == sum.present());
  const double epsilon = call.attributes.real("epsilon");
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
        normalize_row(hidden, s, weight.as<const A>(), bias.as<const A>(), epsilon, y.as<A>() + row * hidden,
                      mean.as<float>()[row], inv_std.as<float>()[row]);
      }
    });
  });
}

/// One row: dx, and its shares of dweight and dbias added to the partial sums. addend and dbias may be null.
template <typename A>
HWY_INLINE void normalize_row_backward(std::int64_t n, const A* dy, const A* x, const A* weight, float mean,
                                       float inv_std, const A* addend, A* dx, float* dweight, float* dbias) {
  const FloatTag d;
  RowSum<float> sums;      // g
  RowSum<float> products;  // g * n
  for_each_summed_vector(n, [&](std::int64_t i, int v, auto part) HWY_ATTR {
    const auto g = hn::Mul(load(d, dy + i, part), load(d, weight + i, part));
    const auto normalized = hn::Mul(hn::Sub(load(d, x + i, part), hn::Set(d, mean)), hn::Set(d, inv_std));
    sums[v] = hn::Add(sums[v], g);
    products[v] = hn::MulAdd(g, normalized, products[v]);  // g is zero behind the row
  });
  const auto mean_g = static_cast<float>(mean_of(sums, n));
  const auto mean_product = static_cast<float>(mean_of(products, n));
  for_each_vector(n, [&](std::int64_t i, auto part) HWY_ATTR {
    const auto gradient = load(d, dy + i, part);
    const auto normalized = hn::Mul(hn::Sub(load(d, x + i, part), hn::Set(d, mean)), hn::Set(d, inv_std));
    store(hn::MulAdd(gradient, normalized, load(d, dweight + i, part)), d, dweight + i, part);
    if (dbias != nullptr) store(hn::Add(gradient, load(d, dbias + i, part)), d, dbias + i, part);
    const auto centered = hn::Sub(hn::Mul(gradient, load(d, weight + i, part)), hn::Set(d, mean_g));
    auto result = hn::Mul(hn::NegMulAdd(normalized, hn::Set(d, mean_product), centered), hn::Set(d, inv_std));
    if (addend != nullptr) result = hn::Add(result, load(d, addend + i, part));
    store(result, d, dx + i, part);
  });
}

void layer_norm_backward(const KernelCall& call) {
  const TensorView& dy = call.in[0];
  const TensorView& x = call.in[1];
  const TensorView& weight = call.in[2];
  const TensorView& mean = call.in[3];
  const TensorView& inv_std = call.in[4];
  const TensorView& addend = call.in[5];
  const TensorView& dx = call.out[0];
  const TensorView& dweight = call.out[1];
  const TensorView& dbias = call.out[2];
  const std::int64_t hidden = x.shape.back();
  const std::int64_t rows = x.shape.rows();
  const std::int64_t blocks = (rows + kRowsPerPartialSum - 1) / kRowsPerPartialSum;
  auto* weight_sums = call.out[3].as<float>();
  float* bias_sums = dbias.present() ? weight_sums + blocks * hidden : nullptr;
  with_element_type(x.dtype, [&](auto* type) HWY_ATTR {
    using A = std::remove_pointer_t<decltype(type)>;
    for_each_block(rows, kRowsPerPartialSum, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
      const std::int64_t partial = begin / kRowsPerPartialSum * hidden;
      const auto bytes = static_cast<std::size_t>(hidden) * sizeof(float);
      std::memset(weight_sums + partial, 0, bytes);
      if (bias_sums != nullptr) std::memset(bias_sums + partial, 0, bytes);
      for (std::int64_t row = begin; row < begin + count; ++row) {
        const std::int64_t at = row * hidden;
        normalize_row_backward(hidden, dy.as<const A>() + at, x.as<const A>() + at, weight.as<const A>(),
                               mean.as<const float>()[row], inv_std.as<const float>()[row],
                               addend.present() ? addend.as<const A>() + at : nullptr, dx.as<A>() + at,
                               weight_sums + partial, bias_sums == nullptr ? nullptr : bias_sums + partial);
      }
    });
  });
  if (dweight.present()) add_partial_sums(weight_sums, blocks, hidden, adds(call), dweight.as<float>());
  if (dbias.present()) add_partial_sums(bias_sums, blocks, hidden, adds(call), dbias.as<float>());
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(layer_norm);
HWY_EXPORT(layer_norm_backward);

void layer_norm(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(layer_norm)(call); }
void layer_norm_backward(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(layer_norm_backward)(call); }

}  // namespace heddle::cpu
#endif
