// Factors in bf16 for AMX, where this instruction set has HEDDLE_HAS_AMX_FACTORS and amx_tiles() says so. Two by two
// tiles of C of 16 rows and columns stay in registers while a depth block passes by in steps of 32 terms: each step
// loads two tiles of A and two of B for four products. Every tile of a packed operand is 1 KiB without gaps: of A, row
// by row; of B, the words of bf16_dot-inl.h. Per-target include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_MATMUL_BF16_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_MATMUL_BF16_AMX_INL_H_
#undef HEDDLE_KERNELS_CPU_MATMUL_BF16_AMX_INL_H_
#else
#define HEDDLE_KERNELS_CPU_MATMUL_BF16_AMX_INL_H_
#endif

#include "kernels/cpu/amx_registers.h"
#include "kernels/cpu/matmul_bf16_dot-inl.h"

#undef HEDDLE_HAS_AMX_FACTORS
#if HEDDLE_HAS_BF16_DOT && HEDDLE_AMX
#define HEDDLE_HAS_AMX_FACTORS 1

HEDDLE_BF16_DOT_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

inline constexpr std::int64_t kAmxTileWords = kAmxRows * kAmxRowWords;
inline constexpr std::int64_t kAmxRowStrip = 2 * kAmxRows, kAmxColumnStrip = 2 * kAmxColumns;

/// The first `terms` terms of a step, zeros behind them.
HWY_INLINE void store_step(const BFloat16* from, std::int64_t terms, DotWord* to) {
  const auto there = static_cast<__mmask32>((std::uint64_t{1} << terms) - 1);
  _mm512_storeu_si512(to, terms == kAmxDepth ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi16(there, from));
}
/// The same, rounded.
HWY_INLINE void store_step(const float* from, std::int64_t terms, DotWord* to) {
  const auto there = static_cast<__mmask32>((std::uint64_t{1} << terms) - 1);
  const __m512 first = _mm512_maskz_loadu_ps(static_cast<__mmask16>(there), from);
  const __m512 second = _mm512_maskz_loadu_ps(static_cast<__mmask16>(there >> 16), from + 16);
  _mm512_storeu_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first)));
}

/// One step of `rows` rows of any strides, of a strip.
template <typename T>
void pack_any_amx_rows(const T* from, std::int64_t row_stride, std::int64_t depth_stride, std::int64_t rows,
                       std::int64_t terms, DotWord* strip) {
  std::fill_n(strip, kAmxRowStrip * kAmxRowWords, DotWord{0});
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t k = 0; k < terms; ++k) {
      const BFloat16 rounded(static_cast<float>(from[i * row_stride + k * depth_stride]));
      strip[i * kAmxRowWords + k / 2] |= DotWord{rounded.bits} << 16 * (k % 2);
    }
  }
}

/// The same of rows whose terms are adjacent.
template <typename T>
void pack_amx_rows_along_depth(const T* from, std::int64_t row_stride, std::int64_t rows, std::int64_t terms,
                               DotWord* strip) {
  constexpr std::int64_t kAhead = 4 * 64 / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < rows; ++i) {
    __builtin_prefetch(from + i * row_stride + kAhead);  // may lie beyond the matrix
    store_step(from + i * row_stride, terms, strip + i * kAmxRowWords);
  }
  std::fill(strip + rows * kAmxRowWords, strip + kAmxRowStrip * kAmxRowWords, DotWord{0});
}

/// The same of a full strip whose rows are adjacent: as words of a column first, which are transposed.
template <typename T>
void pack_amx_rows_along_rows(const T* from, std::int64_t depth_stride, std::int64_t terms, DotWord* strip) {
  const TileWords<kAmxRowStrip> words;
  static_assert(hn::MaxLanes(TileWords<kAmxRowStrip>()) == kAmxRowWords);
  alignas(64) DotWord columns[kAmxRowWords * kAmxRowStrip];
  pack_words_along_tile<kAmxRowStrip>(from, depth_stride, 1, terms, 0, columns);
  fill_strips<kAmxRowStrip>(1, filled_depth(terms) / kDotDepth, kAmxRowWords, columns);
  const StridedRows<DotWord> of_words = {columns, kAmxRowStrip};
  for (std::int64_t i = 0; i < kAmxRowStrip; i += 4) {
    hn::Vec<TileWords<kAmxRowStrip>> rows[4];
    load_transposed(words, of_words, i, rows);
    HWY_UNROLL(4)
    for (int j = 0; j < 4; ++j) hn::StoreU(rows[j], words, strip + (i + j) * kAmxRowWords);
  }
}

/// Packs rows of A: [strips][steps][kAmxRowStrip][kAmxRowWords].
template <typename T>
void pack_amx_rows(const T* from, std::int64_t row_stride, std::int64_t depth_stride, std::int64_t rows,
                   std::int64_t depth, DotWord* packed) {
  const auto pack = [&](std::int64_t row, std::int64_t k) HWY_ATTR {
    const std::int64_t count = std::min(kAmxRowStrip, rows - row), terms = std::min(kAmxDepth, depth - k);
    const T* first = from + row * row_stride + k * depth_stride;
    DotWord* strip = packed + row * amx_words(depth) + k / kAmxDepth * kAmxRowStrip * kAmxRowWords;
    if constexpr (!std::is_same_v<T, Float16>) {
      if (depth_stride == 1) return pack_amx_rows_along_depth(first, row_stride, count, terms, strip);
      if (row_stride == 1 && count == kAmxRowStrip) return pack_amx_rows_along_rows(first, depth_stride, terms, strip);
    }
    pack_any_amx_rows(first, row_stride, depth_stride, count, terms, strip);
  };
  if (depth_stride == 1) {
    for (std::int64_t row = 0; row < rows; row += kAmxRowStrip) {
      for (std::int64_t k = 0; k < depth; k += kAmxDepth) pack(row, k);
    }
  } else {  // each depth of a wide matrix is a page of its own
    for (std::int64_t k = 0; k < depth; k += kAmxDepth) {
      for (std::int64_t row = 0; row < rows; row += kAmxRowStrip) pack(row, k);
    }
  }
}

/// Sums of kRows by kColumns tiles of C. A strip of B is two of 16 columns, one behind the other.
template <class Registers, int kRows, int kColumns>
struct AmxTile {
  static void multiply(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t words, bool add,
                       float* HWY_RESTRICT sums, std::int64_t stride) {
    constexpr bool kLower = kRows == 2, kRight = kColumns == 2;
    Registers::template zero<0>();
    if constexpr (kRight) Registers::template zero<1>();
    if constexpr (kLower) Registers::template zero<2>();
    if constexpr (kLower && kRight) Registers::template zero<3>();
    const float* right = b + words * kAmxColumns;
    for (std::int64_t word = 0; word < words; word += kAmxRowWords) {
      Registers::template load<4>(a, kAmxRowBytes);
      Registers::template load<6>(b, kAmxRowBytes);
      Registers::template multiply<0, 4, 6>();
      if constexpr (kRight) {
        Registers::template load<7>(right, kAmxRowBytes);
        Registers::template multiply<1, 4, 7>();
      }
      if constexpr (kLower) {
        Registers::template load<5>(a + kAmxTileWords, kAmxRowBytes);
        Registers::template multiply<2, 5, 6>();
      }
      if constexpr (kLower && kRight) Registers::template multiply<3, 5, 7>();
      a += kAmxRowStrip * kAmxRowWords;
      b += kAmxTileWords;
      right += kAmxTileWords;
    }
    if (!add) return store(sums, stride);
    alignas(64) float block[kAmxRowStrip * kAmxColumnStrip];
    store(block, kAmxColumnStrip);
    const FloatTag d;
    for (std::int64_t row = 0; row < kRows * kAmxRows; ++row) {
      HWY_UNROLL(2)
      for (std::int64_t column = 0; column < kColumns * kAmxColumns; column += kTileLanes) {
        float* to = sums + row * stride + column;
        hn::StoreU(hn::Add(hn::LoadU(d, to), hn::Load(d, block + row * kAmxColumnStrip + column)), d, to);
      }
    }
  }

 private:
  static void store(float* to, std::int64_t stride) {
    const std::int64_t bytes = stride * static_cast<std::int64_t>(sizeof(float)), lower = kAmxRows * stride;
    Registers::template store<0>(to, bytes);
    if constexpr (kColumns == 2) Registers::template store<1>(to + kAmxColumns, bytes);
    if constexpr (kRows == 2) Registers::template store<2>(to + lower, bytes);
    if constexpr (kRows == 2 && kColumns == 2) Registers::template store<3>(to + lower + kAmxColumns, bytes);
  }
};

/// Eight whole tiles.
constexpr AmxConfig whole_amx_tiles() {
  AmxConfig config;
  for (int tile = 0; tile < 8; ++tile) config.set(tile, kAmxRows, kAmxRowBytes);
  return config;
}
inline constexpr AmxConfig kWholeAmxTiles = whole_amx_tiles();

/// Of the form that matmul_tiles-inl.h asks for.
template <class Registers>
struct AmxFactors {
  static constexpr std::int64_t kTileRows = kAmxRowStrip, kTileColumns = kAmxColumnStrip;
  static constexpr std::int64_t kRowStep = kAmxRows, kColumnStep = kAmxColumns;
  static constexpr std::int64_t kDepthStep = kAmxDepth, kWordsPerStep = kAmxRowWords;
  static constexpr TileFunction kTiles[2][2] = {
      {&AmxTile<Registers, 1, 1>::multiply, &AmxTile<Registers, 2, 1>::multiply},
      {&AmxTile<Registers, 1, 2>::multiply, &AmxTile<Registers, 2, 2>::multiply}};
  struct Scope : AmxScope<Registers> {
    Scope() : AmxScope<Registers>(kWholeAmxTiles) {}
  };

  static void pack_rows(const MatrixOperand& a, std::int64_t rows, std::int64_t depth, float* packed) {
    with_element_type(a.dtype, [&](auto* type) HWY_ATTR {
      using T = std::remove_pointer_t<decltype(type)>;
      pack_amx_rows(static_cast<const T*>(a.data), a.row_stride, a.column_stride, rows, depth,
                    reinterpret_cast<DotWord*>(packed));
    });
  }
  static void pack_columns(const MatrixOperand& b, std::int64_t columns, std::int64_t depth, float* packed) {
    with_element_type(b.dtype, [&](auto* type) HWY_ATTR {
      using T = std::remove_pointer_t<decltype(type)>;
      pack_word_strips<kAmxColumns>(static_cast<const T*>(b.data), b.column_stride, b.row_stride, columns, depth,
                                    amx_words(depth), reinterpret_cast<DotWord*>(packed));
    });
  }
  static void pack_quantized_columns(const MatrixOperand& b, const QuantizedReader& reader, std::int64_t columns,
                                     std::int64_t depth, float* packed) {
    pack_quantized_words<kAmxColumns>(b, reader, columns, depth, amx_words(depth), reinterpret_cast<DotWord*>(packed));
  }
};

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#else
#define HEDDLE_HAS_AMX_FACTORS 0
#endif  // HEDDLE_HAS_BF16_DOT && HEDDLE_AMX

#endif  // per-target include guard
