// The instructions that multiply pairs of bf16, where the instruction set of this pass has them: HEDDLE_HAS_BF16_DOT.
// Highway knows no target with them, so code between HEDDLE_BF16_DOT_BEFORE_NAMESPACE and HWY_AFTER_NAMESPACE is
// compiled for them besides, and runs only where uses_bf16_dot() says so. Per-target include guard, as Highway's own
// -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_BF16_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_BF16_DOT_INL_H_
#undef HEDDLE_KERNELS_CPU_BF16_DOT_INL_H_
#else
#define HEDDLE_KERNELS_CPU_BF16_DOT_INL_H_
#endif

#include "kernels/cpu/bf16_dot.h"
#include "kernels/cpu/simd-inl.h"

// For each kind of instruction:
//   kDotDepth, DotWord   so many terms of a row or column lie together in a word of packed factors; what lacks is zero
//   add_words            adds kDotDepth terms to each lane of a sum, as a tile of a product does
//   add_pairs            adds two terms to each lane: a pair is a word of 32 bits, the first in the lower half
//   pairs_of             such words of the elements of two vectors, rounded
//   store_halves         the elements of a vector, rounded
#undef HEDDLE_HAS_BF16_DOT
#undef HEDDLE_BF16_DOT_BEFORE_NAMESPACE
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
#define HEDDLE_HAS_BF16_DOT 1

#include <immintrin.h>

#define HEDDLE_BF16_DOT_BEFORE_NAMESPACE()          \
  HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16") \
  static_assert(true, "For requiring trailing semicolon")

HEDDLE_BF16_DOT_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

inline constexpr std::int64_t kDotDepth = 2;
using DotWord = std::uint32_t;

HWY_INLINE FloatVector add_pairs(FloatVector a, FloatVector b, FloatVector sum) {
  return FloatVector{_mm512_dpbf16_ps(sum.raw, reinterpret_cast<__m512bh>(a.raw), reinterpret_cast<__m512bh>(b.raw))};
}

HWY_INLINE FloatVector add_words(FloatVector a, FloatVector b, FloatVector sum) { return add_pairs(a, b, sum); }

HWY_INLINE hn::Vec<WordTag> pairs_of(const float* first, const float* second) {
  alignas(64) static constexpr std::uint16_t kOrder[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                           21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                           11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512bh halves = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(second), _mm512_loadu_ps(first));
  return hn::Vec<WordTag>{_mm512_permutexvar_epi16(_mm512_load_si512(kOrder), reinterpret_cast<__m512i>(halves))};
}

HWY_INLINE void store_halves(const float* from, BFloat16* to) {
  const __m256bh halves = _mm512_cvtneps_pbh(_mm512_loadu_ps(from));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), reinterpret_cast<__m256i>(halves));
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#elif HWY_TARGET == HWY_NEON && HEDDLE_ARM_BF16_DOT
#define HEDDLE_HAS_BF16_DOT 1

#include <arm_neon.h>

#define HEDDLE_BF16_DOT_BEFORE_NAMESPACE()          \
  HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+crypto+bf16") \
  static_assert(true, "For requiring trailing semicolon")

HEDDLE_BF16_DOT_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

inline constexpr std::int64_t kDotDepth = 4;
using DotWord = std::uint64_t;

HWY_INLINE FloatVector add_pairs(FloatVector a, FloatVector b, FloatVector sum) {
  return FloatVector{vbfdotq_f32(sum.raw, vreinterpretq_bf16_f32(a.raw), vreinterpretq_bf16_f32(b.raw))};
}

/// a holds words of two rows, b of two columns; the lanes of the sum are the elements (0, 0), (0, 1), (1, 0), (1, 1) of
/// their product. Each has the bits of two add_pairs, one after the other (BFMatMulAdd in Arm's manual).
HWY_INLINE FloatVector add_words(FloatVector a, FloatVector b, FloatVector sum) {
  return FloatVector{vbfmmlaq_f32(sum.raw, vreinterpretq_bf16_f32(a.raw), vreinterpretq_bf16_f32(b.raw))};
}

/// Four elements rounded to bf16, zeros behind them.
HWY_INLINE uint16x8_t halves_of(const float* from) {
  return vreinterpretq_u16_bf16(vcvtq_low_bf16_f32(vld1q_f32(from)));
}

HWY_INLINE hn::Vec<WordTag> pairs_of(const float* first, const float* second) {
  return hn::Vec<WordTag>{vreinterpretq_u32_u16(vzip1q_u16(halves_of(first), halves_of(second)))};
}

HWY_INLINE void store_halves(const float* from, BFloat16* to) { vst1_u16(&to->bits, vget_low_u16(halves_of(from))); }

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#else
#define HEDDLE_HAS_BF16_DOT 0
#endif

#if HEDDLE_HAS_BF16_DOT
HEDDLE_BF16_DOT_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// The pair at `pair` in each lane.
HWY_INLINE FloatVector broadcast_pair(const void* pair) {
  std::uint32_t word;
  std::memcpy(&word, pair, sizeof(word));
  return hn::BitCast(FloatTag(), hn::Set(WordTag(), word));
}

/// Terms with the zeros that fill their last word.
constexpr std::int64_t filled_depth(std::int64_t depth) { return (depth + kDotDepth - 1) / kDotDepth * kDotDepth; }

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#endif  // per-target include guard
