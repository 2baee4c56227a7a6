// What the instruction of AVX512-BF16 wants of packed factors and of a tile; included by matmul_bf16_dot-inl.h, which
// says what each function is for. Per-target include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_MATMUL_BF16_AVX512_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_MATMUL_BF16_AVX512_INL_H_
#undef HEDDLE_KERNELS_CPU_MATMUL_BF16_AVX512_INL_H_
#else
#define HEDDLE_KERNELS_CPU_MATMUL_BF16_AVX512_INL_H_
#endif

#include "kernels/cpu/bf16_dot-inl.h"
#include "kernels/cpu/matmul_tiles-inl.h"
#include "kernels/cpu/transpose-inl.h"

#if HEDDLE_HAS_BF16_DOT && HWY_TARGET != HWY_NEON

HEDDLE_BF16_DOT_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// Words along the tile that are packed together.
template <std::int64_t kTile>
using TileWords = hn::FixedTag<std::uint32_t, std::min<std::int64_t>(kTile, 16)>;

/// As many elements as lanes, rounded to bf16, each in the lower half of a word.
template <class D>
HWY_INLINE hn::Vec<D> load_halves(D words, const BFloat16* from) {
  const hn::Rebind<std::uint16_t, D> halves;
  return hn::PromoteTo(words, hn::LoadU(halves, &from->bits));
}
template <class D>
HWY_INLINE hn::Vec<D> load_halves(D words, const float* from) {
  const hn::Rebind<std::uint16_t, D> halves;
  hn::Vec<decltype(halves)> bits;
  if constexpr (hn::MaxLanes(D()) == 16) {
    bits.raw = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(from)));
  } else {
    static_assert(hn::MaxLanes(D()) == 8);
    bits.raw = reinterpret_cast<__m128i>(_mm256_cvtneps_pbh(_mm256_loadu_ps(from)));
  }
  return hn::PromoteTo(words, bits);
}

template <typename T>
struct StridedRows {
  const T* from;
  std::int64_t stride;
  const T* operator[](std::size_t i) const { return from + static_cast<std::int64_t>(i) * stride; }
};

// Words lie in the rows already, so they are transposed, a line of each row at a time.
template <std::int64_t kTile>
std::int64_t pack_words_along_depth(const BFloat16* from, std::int64_t tile_stride, std::int64_t depth,
                                    DotWord* strip) {
  constexpr std::int64_t kLinesAhead = 4, kLine = 64 / static_cast<std::int64_t>(sizeof(BFloat16));
  const TileWords<kTile> words;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(words));
  const std::int64_t whole = depth - depth % 8;
  for (std::int64_t line = 0; line < whole; line += kLine) {
    const std::int64_t end = std::min(whole, line + kLine);
    for (std::int64_t i = 0; i < kTile; i += kLanes) {
      const StridedRows<BFloat16> rows = {from + i * tile_stride, tile_stride};
      for (std::int64_t row = 0; row < kLanes; ++row) {
        __builtin_prefetch(rows[static_cast<std::size_t>(row)] + line + kLinesAhead * kLine);  // may lie beyond
      }
      for (std::int64_t k = line; k < end; k += 8) {
        hn::Vec<TileWords<kTile>> columns[4];
        load_transposed(words, rows, k, columns);
        DotWord* to = strip + k / 2 * kTile + i;
        HWY_UNROLL(4)
        for (int j = 0; j < 4; ++j) hn::StoreU(columns[j], words, to + j * kTile);
      }
    }
  }
  return whole;
}

// Rounded on the way, some elements of each row at a time.
template <std::int64_t kTile>
std::int64_t pack_words_along_depth(const float* from, std::int64_t tile_stride, std::int64_t depth, DotWord* strip) {
  constexpr std::int64_t kDepth = 64;
  alignas(64) BFloat16 rounded[kTile * kDepth];
  const std::int64_t whole = depth - depth % 8;
  for (std::int64_t begin = 0; begin < whole; begin += kDepth) {
    const std::int64_t count = std::min(kDepth, whole - begin);
    for (std::int64_t i = 0; i < kTile; ++i) {
      const float* row = from + i * tile_stride + begin;
      BFloat16* to = rounded + i * kDepth;
      std::int64_t k = 0;
      for (; k + 16 <= count; k += 16) {
        __builtin_prefetch(row + k + 4 * kDepth);  // may lie beyond the matrix
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + k),
                            reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(row + k))));
      }
      for (; k < count; ++k) to[k] = BFloat16(row[k]);
    }
    pack_words_along_depth<kTile>(rounded, kDepth, count, strip + begin / 2 * kTile);
  }
  return whole;
}

template <std::int64_t kTile, typename T>
void pack_words_along_tile(const T* from, std::int64_t depth_stride, std::int64_t strips, std::int64_t depth,
                           std::int64_t strip_words, DotWord* packed) {
  const TileWords<kTile> words;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(words));
  for (std::int64_t k = 0; k < depth; k += 2) {
    const T* row = from + k * depth_stride;
    DotWord* to = packed + k / 2 * kTile;
    for (std::int64_t strip = 0; strip < strips; ++strip, row += kTile, to += strip_words) {
      for (std::int64_t i = 0; i < kTile; i += kLanes) {
        auto word = load_halves(words, row + i);
        if (k + 1 < depth) {
          word = hn::Or(word, hn::ShiftLeft<16>(load_halves(words, row + depth_stride + i)));
        }
        hn::StoreU(word, words, to + i);
      }
    }
  }
}

HWY_INLINE void store_words(const float* const (&terms)[kDotDepth], DotWord* to) {
  hn::StoreU(pairs_of(terms[0], terms[1]), WordTag(), to);
}

template <int kRows, int kVectors>
struct DotTile {
  static void multiply(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t words, bool add,
                       float* HWY_RESTRICT sums, std::int64_t stride) {
    const FloatTag d;
    FloatVector sum[kRows][kVectors];
    clear_tile(sum);
    for (std::int64_t word = 0; word < words; ++word, a += kRowTile, b += kColumnTile) {
      FloatVector row[kVectors];
      HWY_UNROLL(4)
      for (int j = 0; j < kVectors; ++j) row[j] = hn::Load(d, b + j * kTileLanes);
      HWY_UNROLL(16)
      for (int i = 0; i < kRows; ++i) {
        const FloatVector element = broadcast_pair(a + i);
        HWY_UNROLL(4)
        for (int j = 0; j < kVectors; ++j) sum[i][j] = add_words(element, row[j], sum[i][j]);
      }
    }
    store_tile(sum, add, sums, stride);
  }
};

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_HAS_BF16_DOT on x86

#endif  // per-target include guard
