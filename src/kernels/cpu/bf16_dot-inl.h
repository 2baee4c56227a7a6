// The instruction that multiplies pairs of bf16, where the instruction set of this pass has it: HEDDLE_HAS_BF16_DOT.
// Highway knows no target with it, so code between HEDDLE_BF16_DOT_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE is compiled
// for it besides, and runs only where uses_bf16_dot() says so. Per-target include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_BF16_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_BF16_DOT_INL_H_
#undef HEDDLE_KERNELS_CPU_BF16_DOT_INL_H_
#else
#define HEDDLE_KERNELS_CPU_BF16_DOT_INL_H_
#endif

#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/simd-inl.h"

#undef HEDDLE_HAS_BF16_DOT
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define HEDDLE_HAS_BF16_DOT 1

#include <immintrin.h>

#undef HEDDLE_BF16_DOT_BEFORE_NAMESPACE
#define HEDDLE_BF16_DOT_BEFORE_NAMESPACE()          \
  HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16") \
  static_assert(true, "For requiring trailing semicolon")

HEDDLE_BF16_DOT_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// sum + a.second * b.second + a.first * b.first, each product exact and each sum rounded: words are pairs of bf16, the
/// first in the lower half.
HWY_INLINE FloatVector add_pairs(FloatVector a, FloatVector b, FloatVector sum) {
  return FloatVector{_mm512_dpbf16_ps(sum.raw, reinterpret_cast<__m512bh>(a.raw), reinterpret_cast<__m512bh>(b.raw))};
}

/// The pair at `pair` in each lane.
HWY_INLINE FloatVector broadcast_pair(const void* pair) {
  std::uint32_t word;
  std::memcpy(&word, pair, sizeof(word));
  return hn::BitCast(FloatTag(), hn::Set(WordTag(), word));
}

/// Words of the elements of two vectors, rounded.
HWY_INLINE hn::Vec<WordTag> pairs_of(const float* first, const float* second) {
  alignas(64) static constexpr std::uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512bh halves = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(second), _mm512_loadu_ps(first));
  return hn::Vec<WordTag>{_mm512_permutexvar_epi16(_mm512_load_si512(kOrder), reinterpret_cast<__m512i>(halves))};
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#else
#define HEDDLE_HAS_BF16_DOT 0
#endif

#endif  // per-target include guard
