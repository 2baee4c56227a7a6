// Sums over a row whose bits do not depend on how wide vectors are. Per-target include guard, as Highway's own -inl.h
// files.
#if defined(HEDDLE_KERNELS_CPU_ROW_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_ROW_SUM_INL_H_
#undef HEDDLE_KERNELS_CPU_ROW_SUM_INL_H_
#else
#define HEDDLE_KERNELS_CPU_ROW_SUM_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// The sum of a row's terms, with the same bits on every instruction set that fuses multiply-adds: term i belongs to
/// part i % 16, however many parts a vector has; parts are added in pairs at the end. T: float or double.
template <typename T>
class RowSum {
 public:
  using Tag = hn::ScalableTag<T>;
  using Vector = hn::Vec<Tag>;
  static constexpr std::int64_t kParts = 16;
  static constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(Tag()));
  static constexpr int kVectors = static_cast<int>(kParts / kLanes);

  HWY_INLINE RowSum() {
    HWY_UNROLL(16)
    for (int v = 0; v < kVectors; ++v) parts_[v] = hn::Zero(Tag());
  }
  /// The parts from v * kLanes on.
  HWY_INLINE Vector& operator[](int v) { return parts_[v]; }

  HWY_INLINE T total() const {
    HWY_ALIGN T sums[kParts];
    HWY_UNROLL(16)
    for (int v = 0; v < kVectors; ++v) hn::Store(parts_[v], Tag(), sums + v * kLanes);
    for (std::int64_t half = kParts / 2; half > 0; half /= 2) {
      for (std::int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
    }
    return sums[0];
  }

 private:
  Vector parts_[kVectors];
};

/// As for_each_vector, for steps that add to a RowSum<float>: step(i, v, extent) adds to its vector v.
template <typename Step>
HWY_INLINE void for_each_summed_vector(std::int64_t n, const Step& step) {
  using Sum = RowSum<float>;
  std::int64_t i = 0;
  for (; i + Sum::kParts <= n; i += Sum::kParts) {
    HWY_UNROLL(16)
    for (int v = 0; v < Sum::kVectors; ++v) step(i + v * Sum::kLanes, v, Whole{});
  }
  HWY_UNROLL(16)
  for (int v = 0; v < Sum::kVectors; ++v, i += Sum::kLanes) {
    if (i + Sum::kLanes <= n) {
      step(i, v, Whole{});
    } else if (i < n) {
      step(i, v, Part{static_cast<std::size_t>(n - i)});
    }
  }
}

/// sum's parts = f(terms[part], part), for 16 terms.
template <typename Function>
HWY_INLINE void add_terms(const float* terms, RowSum<double>& sum, const Function& f) {
  using Sum = RowSum<double>;
  const hn::Rebind<float, Sum::Tag> narrow;
  HWY_UNROLL(16)
  for (int v = 0; v < Sum::kVectors; ++v) {
    sum[v] = f(hn::PromoteTo(Sum::Tag(), hn::LoadU(narrow, terms + v * Sum::kLanes)), sum[v]);
  }
}

/// The sum over a row in f64: f(x, sum) adds a vector's terms.
template <typename Function>
HWY_INLINE double sum_in_double(std::int64_t n, const float* x, const Function& f) {
  constexpr std::int64_t kParts = RowSum<double>::kParts;
  RowSum<double> sum;
  std::int64_t i = 0;
  for (; i + kParts <= n; i += kParts) add_terms(x + i, sum, f);
  if (i < n) {
    HWY_ALIGN float rest[kParts] = {};
    std::memcpy(rest, x + i, static_cast<std::size_t>(n - i) * sizeof(float));
    add_terms(rest, sum, f);
  }
  return sum.total();
}

/// Sum of squares in f64, where those of floats are exact.
HWY_INLINE double sum_of_squares_of(std::int64_t n, const float* x) {
  return sum_in_double(n, x, [](auto value, auto sum) HWY_ATTR { return hn::MulAdd(value, value, sum); });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
