// What Arm's instructions for bf16 want of packed factors and of a tile; included by matmul_bf16_dot-inl.h, which says
// what each function is for. Per-target include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_MATMUL_BF16_NEON_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_MATMUL_BF16_NEON_INL_H_
#undef HEDDLE_KERNELS_CPU_MATMUL_BF16_NEON_INL_H_
#else
#define HEDDLE_KERNELS_CPU_MATMUL_BF16_NEON_INL_H_
#endif

#include "kernels/cpu/bf16_dot-inl.h"
#include "kernels/cpu/matmul_tiles-inl.h"

#if HEDDLE_HAS_BF16_DOT && HWY_TARGET == HWY_NEON

HEDDLE_BF16_DOT_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

HWY_INLINE uint16x8_t halves_of(const BFloat16* from) { return vcombine_u16(vld1_u16(&from->bits), vdup_n_u16(0)); }

/// Words of four rows or columns, of which terms[k] has the terms of depth k.
HWY_INLINE void store_words(const uint16x8_t (&terms)[kDotDepth], DotWord* to) {
  const uint32x4_t first = vreinterpretq_u32_u16(vzip1q_u16(terms[0], terms[1]));
  const uint32x4_t second = vreinterpretq_u32_u16(vzip1q_u16(terms[2], terms[3]));
  vst1q_u64(to, vreinterpretq_u64_u32(vzip1q_u32(first, second)));
  vst1q_u64(to + 2, vreinterpretq_u64_u32(vzip2q_u32(first, second)));
}
HWY_INLINE void store_words(const float* const (&terms)[kDotDepth], DotWord* to) {
  const uint16x8_t halves[] = {halves_of(terms[0]), halves_of(terms[1]), halves_of(terms[2]), halves_of(terms[3])};
  store_words(halves, to);
}

// Words lie in the rows already. A cache line of a row is used up before the next row's is touched.
template <std::int64_t kTile, typename T>
std::int64_t pack_words_along_depth(const T* from, std::int64_t tile_stride, std::int64_t depth, DotWord* strip) {
  constexpr std::int64_t kLinesAhead = 4, kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t whole = depth - depth % kDotDepth;
  for (std::int64_t line = 0; line < whole; line += kLine) {
    const std::int64_t end = std::min(whole, line + kLine);
    for (std::int64_t i = 0; i < kTile; ++i) {
      const T* row = from + i * tile_stride;
      __builtin_prefetch(row + line + kLinesAhead * kLine);  // may lie beyond the matrix
      for (std::int64_t k = line; k < end; k += kDotDepth) {
        vst1_u16(reinterpret_cast<std::uint16_t*>(strip + k / kDotDepth * kTile + i), vget_low_u16(halves_of(row + k)));
      }
    }
  }
  return whole;
}

template <std::int64_t kTile, typename T>
void pack_words_along_tile(const T* from, std::int64_t depth_stride, std::int64_t strips, std::int64_t depth,
                           std::int64_t strip_words, DotWord* packed) {
  static_assert(kTile % 4 == 0);
  for (std::int64_t k = 0; k < depth; k += kDotDepth) {
    const T* row = from + k * depth_stride;
    DotWord* to = packed + k / kDotDepth * kTile;
    for (std::int64_t strip = 0; strip < strips; ++strip, row += kTile, to += strip_words) {
      for (std::int64_t i = 0; i < kTile; i += 4) {
        uint16x8_t terms[kDotDepth];
        HWY_UNROLL(4)
        for (std::int64_t next = 0; next < kDotDepth; ++next) {
          terms[next] = k + next < depth ? halves_of(row + next * depth_stride + i) : vdupq_n_u16(0);
        }
        store_words(terms, to + i);
      }
    }
  }
}

// The sums of a tile are blocks of two by two, which become rows at the end. A row that the strip of A has beyond kRows
// is computed too.
template <int kRows, int kVectors>
struct DotTile {
  static void multiply(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t words, bool add,
                       float* HWY_RESTRICT sums, std::int64_t stride) {
    constexpr int kRowPairs = (kRows + 1) / 2, kColumnPairs = 2 * kVectors;
    static_assert(kTileLanes == 4 && kRowTile % 2 == 0);
    const FloatTag d;
    FloatVector sum[kRowPairs][kColumnPairs];
    clear_tile(sum);
    // Words of 32 bits here: those of two rows or columns are a vector.
    for (std::int64_t word = 0; word < words; word += 2, a += 2 * kRowTile, b += 2 * kColumnTile) {
      FloatVector rows[kRowPairs];
      HWY_UNROLL(4)
      for (int i = 0; i < kRowPairs; ++i) rows[i] = hn::Load(d, a + 4 * i);
      HWY_UNROLL(8)
      for (int j = 0; j < kColumnPairs; ++j) {
        const FloatVector columns = hn::Load(d, b + 4 * j);
        HWY_UNROLL(4)
        for (int i = 0; i < kRowPairs; ++i) sum[i][j] = add_words(rows[i], columns, sum[i][j]);
      }
    }
    FloatVector by_row[kRows][kVectors];
    HWY_UNROLL(8)
    for (int i = 0; i < kRows; ++i) {
      HWY_UNROLL(4)
      for (int j = 0; j < kVectors; ++j) {
        const FloatVector left = sum[i / 2][2 * j], right = sum[i / 2][2 * j + 1];
        by_row[i][j] = i % 2 == 0 ? hn::ConcatLowerLower(d, right, left) : hn::ConcatUpperUpper(d, right, left);
      }
    }
    store_tile(by_row, add, sums, stride);
  }
};

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_HAS_BF16_DOT on Arm

#endif  // per-target include guard
