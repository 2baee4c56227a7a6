#include "math_sweep.h"

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/math_sweep.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which decides what it is compiled for.
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

using test::VectorFunction;

void apply(VectorFunction function, int n, const float* x, float* y) {
  map(n, x, y, [function](FloatTag d, FloatVector v) HWY_ATTR {
    FloatVector first, second;
    switch (function) {
      case VectorFunction::exp: return exp(d, v);
      case VectorFunction::tanh: return tanh(d, v);
      case VectorFunction::logistic: logistic(d, v, first, second); return first;
      case VectorFunction::logistic_slope: logistic(d, v, first, second); return second;
      case VectorFunction::normal: normal(d, v, first, second); return first;
      case VectorFunction::normal_density: break;
    }
    normal(d, v, first, second);
    return second;
  });
}

template <typename T>
void widen_all(int n, const T* from, float* to) {
  const FloatTag d;
  for_each_vector(n, [&](std::int64_t i, auto part) HWY_ATTR { store(load(d, from + i, part), d, to + i, part); });
}
template <typename T>
void narrow_all(int n, const float* from, T* to) {
  const FloatTag d;
  for_each_vector(n, [&](std::int64_t i, auto part) HWY_ATTR { store(load(d, from + i, part), d, to + i, part); });
}

void widen_bf16(int n, const BFloat16* from, float* to) { widen_all(n, from, to); }
void widen_f16(int n, const Float16* from, float* to) { widen_all(n, from, to); }
void narrow_bf16(int n, const float* from, BFloat16* to) { narrow_all(n, from, to); }
void narrow_f16(int n, const float* from, Float16* to) { narrow_all(n, from, to); }

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(apply);
HWY_EXPORT(widen_bf16);
HWY_EXPORT(widen_f16);
HWY_EXPORT(narrow_bf16);
HWY_EXPORT(narrow_f16);
}  // namespace heddle::cpu

namespace heddle::test {

using namespace heddle::cpu;  // of the dispatch tables

void apply(VectorFunction function, int n, const float* x, float* y) { HWY_DYNAMIC_DISPATCH(apply)(function, n, x, y); }
void widen(int n, const BFloat16* from, float* to) { HWY_DYNAMIC_DISPATCH(widen_bf16)(n, from, to); }
void widen(int n, const Float16* from, float* to) { HWY_DYNAMIC_DISPATCH(widen_f16)(n, from, to); }
void narrow(int n, const float* from, BFloat16* to) { HWY_DYNAMIC_DISPATCH(narrow_bf16)(n, from, to); }
void narrow(int n, const float* from, Float16* to) { HWY_DYNAMIC_DISPATCH(narrow_f16)(n, from, to); }

}  // namespace heddle::test
#endif
