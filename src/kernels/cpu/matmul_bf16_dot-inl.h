// Factors in bf16 for processors with AVX512-BF16: packed as pairs along the depth, and multiplied by the instruction
// that adds both terms of a pair to a sum in f32, the second first. HEDDLE_HAS_BF16_DOT says whether this
// instruction set has them; uses_bf16_dot() whether they may run. Per-target include guard, as Highway's own -inl.h
// files.
#if defined(HEDDLE_KERNELS_CPU_MATMUL_BF16_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_MATMUL_BF16_DOT_INL_H_
#undef HEDDLE_KERNELS_CPU_MATMUL_BF16_DOT_INL_H_
#else
#define HEDDLE_KERNELS_CPU_MATMUL_BF16_DOT_INL_H_
#endif

#include "kernels/cpu/bf16_dot-inl.h"
#include "kernels/cpu/matmul_tiles-inl.h"
#include "kernels/cpu/transpose-inl.h"

#if HEDDLE_HAS_BF16_DOT

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

/// A strip of any strides; what it lacks is filled up with zeros.
template <std::int64_t kTile, typename T>
void pack_any_pairs(const T* from, std::int64_t tile_stride, std::int64_t depth_stride, std::int64_t filled,
                    std::int64_t depth, std::uint32_t* strip) {
  const auto bits = [&](std::int64_t i, std::int64_t k) -> std::uint32_t {
    return i < filled && k < depth ? BFloat16(static_cast<float>(from[i * tile_stride + k * depth_stride])).bits : 0u;
  };
  for (std::int64_t k = 0; k < depth; k += 2, strip += kTile) {
    for (std::int64_t i = 0; i < kTile; ++i) strip[i] = bits(i, k) | bits(i, k + 1) << 16;
  }
}

template <typename T>
struct StridedRows {
  const T* from;
  std::int64_t stride;
  const T* operator[](std::size_t i) const { return from + static_cast<std::int64_t>(i) * stride; }
};

/// A full strip of rows of adjacent elements: pairs lie there already, so words are transposed, a line of each row at a
/// time.
template <std::int64_t kTile>
void pack_pairs_along_depth(const BFloat16* from, std::int64_t tile_stride, std::int64_t depth, std::uint32_t* strip) {
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
        std::uint32_t* to = strip + k / 2 * kTile + i;
        HWY_UNROLL(4)
        for (int j = 0; j < 4; ++j) hn::StoreU(columns[j], words, to + j * kTile);
      }
    }
  }
  pack_any_pairs<kTile>(from + whole, tile_stride, 1, kTile, depth - whole, strip + whole / 2 * kTile);
}

/// The same of f32, rounded on the way some elements of each row at a time.
template <std::int64_t kTile>
void pack_pairs_along_depth(const float* from, std::int64_t tile_stride, std::int64_t depth, std::uint32_t* strip) {
  constexpr std::int64_t kDepth = 64;
  alignas(64) BFloat16 rounded[kTile * kDepth];
  for (std::int64_t begin = 0; begin < depth; begin += kDepth) {
    const std::int64_t count = std::min(kDepth, depth - begin);
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
    pack_pairs_along_depth<kTile>(rounded, kDepth, count, strip + begin / 2 * kTile);
  }
}

/// Full strips whose elements are adjacent along the tile, side by side: two rows at a time, since each row of a wide
/// matrix is a page of its own.
template <std::int64_t kTile, typename T>
void pack_pairs_along_tile(const T* from, std::int64_t depth_stride, std::int64_t strips, std::int64_t depth,
                           std::uint32_t* packed) {
  const TileWords<kTile> words;
  constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(words));
  const std::int64_t strip_words = (depth + 1) / 2 * kTile;
  for (std::int64_t k = 0; k < depth; k += 2) {
    const T* row = from + k * depth_stride;
    std::uint32_t* to = packed + k / 2 * kTile;
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

/// Columns of a quantized B whose elements are adjacent along the depth, a vector of columns at a time.
template <std::int64_t kTile>
void pack_quantized_pairs_along_depth(const MatrixOperand& b, DecodeColumns decode, std::int64_t columns,
                                      std::int64_t depth, std::uint32_t* packed) {
  static_assert(kTile % kPackLanes == 0);
  constexpr std::int64_t kDepth = 64;  // at a time, which the first-level cache holds
  alignas(64) float values[(kDepth + 1) * kPackLanes];
  const QuantizedTensor tensor = {b.dtype, static_cast<const std::byte*>(b.data), b.elements};
  const std::int64_t words = (depth + 1) / 2;
  for (std::int64_t column = 0; column < columns; column += kPackLanes) {
    std::uint32_t* strip = packed + column / kTile * kTile * words + column % kTile;
    const std::int64_t begin = b.first + column * b.column_stride, count = std::min(kPackLanes, columns - column);
    for (std::int64_t k = 0; k < depth; k += kDepth) {
      const std::int64_t end = std::min(kDepth, depth - k);
      for (std::int64_t done = 0; done < end;) {
        const std::int64_t there = std::min(kDepth - (begin + k + done) % kDepth, end - done);
        decode(tensor, begin + k + done, b.column_stride, count, there, values + done * kPackLanes);
        done += there;
      }
      if (end % 2 != 0) std::fill_n(values + end * kPackLanes, kPackLanes, 0.0f);
      for (std::int64_t e = 0; e < end; e += 2) {
        const float* from = values + e * kPackLanes;
        hn::StoreU(pairs_of(from, from + kPackLanes), WordTag(), strip + (k + e) / 2 * kTile);
      }
    }
  }
}

/// Columns of a quantized B that are adjacent: two rows at a time, some strips.
template <std::int64_t kTile>
void pack_quantized_pairs_along_tile(const MatrixOperand& b, DecodeRun decode, std::int64_t columns, std::int64_t depth,
                                     std::uint32_t* packed) {
  constexpr std::int64_t kRun = 96 / kTile * kTile;  // as many as a block of C has
  static_assert(kRun > 0 && kTile % kPackLanes == 0);
  alignas(64) float runs[2][kRun];
  const QuantizedTensor tensor = {b.dtype, static_cast<const std::byte*>(b.data), b.elements};
  const std::int64_t words = (depth + 1) / 2;
  for (std::int64_t column = 0; column < columns; column += kRun, packed += kRun * words) {
    const std::int64_t count = std::min(kRun, columns - column);
    for (float* run : runs) std::fill(run + count, run + kRun, 0.0f);
    for (std::int64_t k = 0; k < depth; k += 2) {
      const std::int64_t begin = b.first + k * b.row_stride + column;
      decode(tensor, begin, count, runs[0]);
      if (k + 1 < depth) {
        decode(tensor, begin + b.row_stride, count, runs[1]);
      } else {
        std::fill_n(runs[1], count, 0.0f);
      }
      for (std::int64_t i = 0; i < count; i += kPackLanes) {
        std::uint32_t* to = packed + i / kTile * kTile * words + k / 2 * kTile + i % kTile;
        hn::StoreU(pairs_of(runs[0] + i, runs[1] + i), WordTag(), to);
      }
      for (std::int64_t i = (count + kPackLanes - 1) / kPackLanes * kPackLanes; i % kTile != 0; i += kPackLanes) {
        std::uint32_t* to = packed + i / kTile * kTile * words + k / 2 * kTile + i % kTile;
        hn::StoreU(hn::Zero(WordTag()), WordTag(), to);
      }
    }
  }
}

template <int kRows, int kVectors>
struct DotTile {
  static void multiply(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t words, bool add,
                       float* HWY_RESTRICT sums) {
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
        for (int j = 0; j < kVectors; ++j) sum[i][j] = add_pairs(element, row[j], sum[i][j]);
      }
    }
    store_tile(sum, add, sums);
  }
};

struct BFloat16DotFactors {
  static constexpr std::int64_t kDepthPerWord = 2;
  static constexpr TileFunctions kTiles = tile_functions<DotTile>();

  template <std::int64_t kTile, typename T>
  static void pack_strips(const T* from, std::int64_t tile_stride, std::int64_t depth_stride, std::int64_t extent,
                          std::int64_t depth, std::uint32_t* packed) {
    const std::int64_t words = (depth + 1) / 2, full = extent - extent % kTile;
    std::int64_t done = 0;
    if constexpr (!std::is_same_v<T, Float16>) {
      if (depth_stride == 1) {
        for (; done < full; done += kTile) {
          pack_pairs_along_depth<kTile>(from + done * tile_stride, tile_stride, depth, packed + done * words);
        }
      } else if (tile_stride == 1) {
        pack_pairs_along_tile<kTile>(from, depth_stride, full / kTile, depth, packed);
        done = full;
      }
    }
    for (; done < extent; done += kTile) {
      pack_any_pairs<kTile>(from + done * tile_stride, tile_stride, depth_stride, std::min(kTile, extent - done), depth,
                            packed + done * words);
    }
  }

  template <std::int64_t kTile>
  static void pack(const MatrixOperand& matrix, std::int64_t tile_stride, std::int64_t depth_stride,
                   std::int64_t extent, std::int64_t depth, float* packed) {
    with_element_type(matrix.dtype, [&](auto* type) HWY_ATTR {
      using T = std::remove_pointer_t<decltype(type)>;
      pack_strips<kTile>(static_cast<const T*>(matrix.data), tile_stride, depth_stride, extent, depth,
                         reinterpret_cast<std::uint32_t*>(packed));
    });
  }
  template <std::int64_t kTile>
  static void pack_quantized(const MatrixOperand& b, const QuantizedReader& reader, std::int64_t columns,
                             std::int64_t depth, float* packed) {
    auto* words = reinterpret_cast<std::uint32_t*>(packed);
    if (b.row_stride == 1) {
      pack_quantized_pairs_along_depth<kTile>(b, reader.columns, columns, depth, words);
    } else {
      pack_quantized_pairs_along_tile<kTile>(b, reader.run, columns, depth, words);
    }
  }
};

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_HAS_BF16_DOT

#endif  // per-target include guard
