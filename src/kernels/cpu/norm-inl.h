// What rms_norm and layer_norm share: gradients of their weights as partial sums over fixed blocks of rows, so that the
// number of threads changes no bit. Per-target include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_NORM_INL_H_
#undef HEDDLE_KERNELS_CPU_NORM_INL_H_
#else
#define HEDDLE_KERNELS_CPU_NORM_INL_H_
#endif

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/row_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

inline constexpr std::int64_t kRowsPerPartialSum = 64;

/// gradient[h] = (adds ? gradient[h] : 0) + sum over blocks of partial[block, h], in the order of blocks.
/// partial f32[blocks, hidden]; gradient f32[hidden]. Parallel over slices of columns.
inline void add_partial_sums(const float* partial, std::int64_t blocks, std::int64_t hidden, bool adds,
                             float* gradient) {
  constexpr std::int64_t kColumns = 64;
  for_each_block(hidden, kColumns, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
    HWY_ALIGN float sums[kColumns] = {};
    for (std::int64_t block = 0; block < blocks; ++block) add_to(count, partial + block * hidden + begin, sums);
    if (adds) {
      add_to(count, sums, gradient + begin);
    } else {
      std::memcpy(gradient + begin, sums, static_cast<std::size_t>(count) * sizeof(float));
    }
  });
}

/// s = x + residual, rounded to A: what the norm reads is what the backward will read. `sum` may be x or residual.
template <typename A>
HWY_INLINE void add_residual(std::int64_t n, const A* x, const A* residual, A* sum) {
  map(n, x, residual, sum, [](FloatTag, FloatVector a, FloatVector b) HWY_ATTR { return hn::Add(a, b); });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
