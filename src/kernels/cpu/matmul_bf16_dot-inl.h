// Factors in bf16 for processors with instructions for them: packed in words of kDotDepth terms along the depth, the
// first lowest, and multiplied by those instructions. HEDDLE_HAS_BF16_DOT says whether this instruction set has them;
// uses_bf16_dot() whether they may run. Per-target include guard, as Highway's own -inl.h files.
//
// What depends on the instruction, of matmul_bf16_avx512-inl.h or matmul_bf16_neon-inl.h:
//   pack_words_along_depth   a full strip of rows of adjacent elements, as far as it goes by whole vectors: returns how
//                            much of the depth that is
//   pack_words_along_tile    full strips whose elements are adjacent along the tile, side by side, `strip_words` from
//                            one to the next: kDotDepth rows at a time, since each row of a wide matrix is a page of
//                            its own
//   store_words              words of kPackLanes rows or columns, of which terms[k] points to the terms of depth k
//   DotTile                  sums of a tile
#if defined(HEDDLE_KERNELS_CPU_MATMUL_BF16_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_MATMUL_BF16_DOT_INL_H_
#undef HEDDLE_KERNELS_CPU_MATMUL_BF16_DOT_INL_H_
#else
#define HEDDLE_KERNELS_CPU_MATMUL_BF16_DOT_INL_H_
#endif

#include "kernels/cpu/bf16_dot-inl.h"
#include "kernels/cpu/matmul_bf16_avx512-inl.h"
#include "kernels/cpu/matmul_bf16_neon-inl.h"
#include "kernels/cpu/matmul_tiles-inl.h"

#if HEDDLE_HAS_BF16_DOT

HEDDLE_BF16_DOT_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// Zeros from word `begin` on in strips of `end` words.
template <std::int64_t kTile>
void fill_strips(std::int64_t extent, std::int64_t begin, std::int64_t end, DotWord* packed) {
  if (begin == end) return;
  for (std::int64_t strip = 0; strip < extent; strip += kTile) {
    std::fill(packed + strip * end + begin * kTile, packed + (strip + kTile) * end, DotWord{0});
  }
}

/// A strip of any strides; what it lacks is filled up with zeros.
template <std::int64_t kTile, typename T>
void pack_any_words(const T* from, std::int64_t tile_stride, std::int64_t depth_stride, std::int64_t filled,
                    std::int64_t depth, DotWord* strip) {
  for (std::int64_t k = 0; k < depth; k += kDotDepth, strip += kTile) {
    for (std::int64_t i = 0; i < kTile; ++i) {
      DotWord word = 0;
      for (std::int64_t next = 0; i < filled && next < kDotDepth && k + next < depth; ++next) {
        const float element = static_cast<float>(from[i * tile_stride + (k + next) * depth_stride]);
        word |= DotWord{BFloat16(element).bits} << 16 * next;
      }
      strip[i] = word;
    }
  }
}

/// Packs `extent` rows of A or columns of B in strips of `words` words: zeros behind the depth.
template <std::int64_t kTile, typename T>
void pack_word_strips(const T* from, std::int64_t tile_stride, std::int64_t depth_stride, std::int64_t extent,
                      std::int64_t depth, std::int64_t words, DotWord* packed) {
  const std::int64_t full = extent - extent % kTile;
  std::int64_t done = 0;
  if constexpr (!std::is_same_v<T, Float16>) {
    if (depth_stride == 1) {
      for (; done < full; done += kTile) {
        const T* rows = from + done * tile_stride;
        DotWord* strip = packed + done * words;
        const std::int64_t whole = pack_words_along_depth<kTile>(rows, tile_stride, depth, strip);
        pack_any_words<kTile>(rows + whole, tile_stride, 1, kTile, depth - whole, strip + whole / kDotDepth * kTile);
      }
    } else if (tile_stride == 1) {
      pack_words_along_tile<kTile>(from, depth_stride, full / kTile, depth, words * kTile, packed);
      done = full;
    }
  }
  for (; done < extent; done += kTile) {
    pack_any_words<kTile>(from + done * tile_stride, tile_stride, depth_stride, std::min(kTile, extent - done), depth,
                          packed + done * words);
  }
  fill_strips<kTile>(extent, filled_depth(depth) / kDotDepth, words, packed);
}

/// Columns of a quantized B whose elements are adjacent along the depth, a vector of columns at a time.
template <std::int64_t kTile>
void pack_quantized_words_along_depth(const MatrixOperand& b, DecodeColumns decode, std::int64_t columns,
                                      std::int64_t depth, std::int64_t words, DotWord* packed) {
  static_assert(kTile % kPackLanes == 0);
  constexpr std::int64_t kDepth = 64;  // at a time, which the first-level cache holds
  alignas(64) float values[kDepth * kPackLanes];
  const QuantizedTensor tensor = {b.dtype, static_cast<const std::byte*>(b.data), b.elements};
  for (std::int64_t column = 0; column < columns; column += kPackLanes) {
    DotWord* strip = packed + column / kTile * kTile * words + column % kTile;
    const std::int64_t begin = b.first + column * b.column_stride, count = std::min(kPackLanes, columns - column);
    for (std::int64_t k = 0; k < depth; k += kDepth) {
      const std::int64_t end = std::min(kDepth, depth - k);
      for (std::int64_t done = 0; done < end;) {
        const std::int64_t there = std::min(kDepth - (begin + k + done) % kDepth, end - done);
        decode(tensor, begin + k + done, b.column_stride, count, there, values + done * kPackLanes);
        done += there;
      }
      std::fill_n(values + end * kPackLanes, (filled_depth(end) - end) * kPackLanes, 0.0f);
      for (std::int64_t e = 0; e < end; e += kDotDepth) {
        const float* terms[kDotDepth];
        for (std::int64_t next = 0; next < kDotDepth; ++next) terms[next] = values + (e + next) * kPackLanes;
        store_words(terms, strip + (k + e) / kDotDepth * kTile);
      }
    }
  }
}

/// Columns of a quantized B that are adjacent: kDotDepth rows at a time, some strips.
template <std::int64_t kTile>
void pack_quantized_words_along_tile(const MatrixOperand& b, DecodeRun decode, std::int64_t columns, std::int64_t depth,
                                     std::int64_t words, DotWord* packed) {
  constexpr std::int64_t kRun = 96 / kTile * kTile;  // as many as a block of C has
  static_assert(kRun > 0 && kTile % kPackLanes == 0);
  alignas(64) float runs[kDotDepth][kRun];
  const QuantizedTensor tensor = {b.dtype, static_cast<const std::byte*>(b.data), b.elements};
  for (std::int64_t column = 0; column < columns; column += kRun, packed += kRun * words) {
    const std::int64_t count = std::min(kRun, columns - column);
    for (float* run : runs) std::fill(run + count, run + kRun, 0.0f);
    for (std::int64_t k = 0; k < depth; k += kDotDepth) {
      for (std::int64_t next = 0; next < kDotDepth; ++next) {
        if (k + next < depth) {
          decode(tensor, b.first + (k + next) * b.row_stride + column, count, runs[next]);
        } else {
          std::fill_n(runs[next], count, 0.0f);
        }
      }
      for (std::int64_t i = 0; i < (count + kTile - 1) / kTile * kTile; i += kPackLanes) {
        const float* terms[kDotDepth];
        for (std::int64_t next = 0; next < kDotDepth; ++next) terms[next] = runs[next] + i;
        store_words(terms, packed + i / kTile * kTile * words + k / kDotDepth * kTile + i % kTile);
      }
    }
  }
}

/// The same of a quantized B.
template <std::int64_t kTile>
void pack_quantized_words(const MatrixOperand& b, const QuantizedReader& reader, std::int64_t columns,
                          std::int64_t depth, std::int64_t words, DotWord* packed) {
  if (b.row_stride == 1) {
    pack_quantized_words_along_depth<kTile>(b, reader.columns, columns, depth, words, packed);
  } else {
    pack_quantized_words_along_tile<kTile>(b, reader.run, columns, depth, words, packed);
  }
  fill_strips<kTile>(columns, filled_depth(depth) / kDotDepth, words, packed);
}

struct BFloat16DotFactors {
  static constexpr std::int64_t kDepthStep = kDotDepth, kWordsPerStep = sizeof(DotWord) / sizeof(float);
  static constexpr TileFunctions kTiles = tile_functions<DotTile>();

  template <std::int64_t kTile>
  static void pack(const MatrixOperand& matrix, std::int64_t tile_stride, std::int64_t depth_stride,
                   std::int64_t extent, std::int64_t depth, float* packed) {
    with_element_type(matrix.dtype, [&](auto* type) HWY_ATTR {
      using T = std::remove_pointer_t<decltype(type)>;
      pack_word_strips<kTile>(static_cast<const T*>(matrix.data), tile_stride, depth_stride, extent, depth,
                              filled_depth(depth) / kDotDepth, reinterpret_cast<DotWord*>(packed));
    });
  }
  template <std::int64_t kTile>
  static void pack_quantized(const MatrixOperand& b, const QuantizedReader& reader, std::int64_t columns,
                             std::int64_t depth, float* packed) {
    pack_quantized_words<kTile>(b, reader, columns, depth, filled_depth(depth) / kDotDepth,
                                reinterpret_cast<DotWord*>(packed));
  }
};

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_HAS_BF16_DOT

#endif  // per-target include guard
