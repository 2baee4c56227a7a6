// Packs rows of A and columns of B into strips of f32, from any storage type: strip[k * kTile + i], zeros at the edge.
// Per-target include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_MATMUL_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_MATMUL_PACK_INL_H_
#undef HEDDLE_KERNELS_CPU_MATMUL_PACK_INL_H_
#else
#define HEDDLE_KERNELS_CPU_MATMUL_PACK_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/quantized.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

inline constexpr std::int64_t kPackLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));

#if HWY_TARGET != HWY_SCALAR
using FourTag = hn::FixedTag<float, 4>;
using FourVector = hn::Vec<FourTag>;

/// As many elements as D has lanes, 4 or 8.
template <class D>
HWY_INLINE hn::Vec<D> load_lanes(D d, const float* from) {
  return hn::LoadU(d, from);
}
template <class D>
HWY_INLINE hn::Vec<D> load_lanes(D d, const BFloat16* from) {
  const hn::Rebind<std::uint16_t, D> narrow;
  const hn::Rebind<std::uint32_t, D> wide;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, &from->bits))));
}
template <class D>
HWY_INLINE hn::Vec<D> load_lanes(D d, const Float16* from) {
#if HWY_TARGET == HWY_EMU128
  return load(d, from);
#else
  const hn::Rebind<hwy::float16_t, D> narrow;
  return hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(from)));
#endif
}
template <typename T>
HWY_INLINE FourVector load_four(const T* from) {
  return load_lanes(FourTag(), from);
}

/// strip[0..4)[0..4) = the transpose of four elements from each of four rows.
template <std::int64_t kTile, typename T>
HWY_INLINE void pack_four_by_four(const T* from, std::int64_t tile_stride, float* strip) {
  const FourTag d;
  const hn::Repartition<std::uint64_t, FourTag> pairs;
  const auto row0 = load_four(from);
  const auto row1 = load_four(from + tile_stride);
  const auto row2 = load_four(from + 2 * tile_stride);
  const auto row3 = load_four(from + 3 * tile_stride);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, row0, row1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, row2, row3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, row0, row1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, row2, row3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, strip);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, strip + kTile);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, strip + 2 * kTile);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, strip + 3 * kTile);
}

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
/// strip[0..8)[0..8) = the transpose of eight elements from each of eight rows.
template <std::int64_t kTile, typename T>
HWY_INLINE void pack_eight_by_eight(const T* from, std::int64_t tile_stride, float* strip) {
  using EightTag = hn::FixedTag<float, 8>;
  const EightTag half;
  const FloatTag d;
  const hn::Repartition<std::uint64_t, FloatTag> pairs;
  const auto rows = [&](std::int64_t i) HWY_ATTR {  // i and i + 4
    return hn::Combine(d, load_lanes(half, from + (i + 4) * tile_stride), load_lanes(half, from + i * tile_stride));
  };
  const auto row0 = rows(0), row1 = rows(1), row2 = rows(2), row3 = rows(3);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, row0, row1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, row2, row3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, row0, row1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, row2, row3));
  // Blocks of four: rows 0-3 at depth j and at 4 + j, rows 4-7 at the same.
  const auto store_both = [&](std::int64_t k, __m512 left, __m512 right) HWY_ATTR {  // of depth k and k + 1
    const auto store_pair = [&](std::int64_t at, __m512 both) HWY_ATTR {
      if constexpr (kTile == 8) {
        hn::StoreU(FloatVector{both}, d, strip + at * kTile);
      } else {
        hn::StoreU(hn::LowerHalf(half, FloatVector{both}), half, strip + at * kTile);
        hn::StoreU(hn::UpperHalf(half, FloatVector{both}), half, strip + (at + 1) * kTile);
      }
    };
    store_pair(k, _mm512_shuffle_f32x4(left, right, 0x88));
    store_pair(k + 4, _mm512_shuffle_f32x4(left, right, 0xdd));
  };
  store_both(0, hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)).raw,
             hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)).raw);
  store_both(2, hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)).raw,
             hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)).raw);
}
inline constexpr std::int64_t kPackStep = 8;
template <std::int64_t kTile, typename T>
HWY_INLINE void pack_square(const T* from, std::int64_t tile_stride, float* strip) {
  pack_eight_by_eight<kTile>(from, tile_stride, strip);
}
#else
inline constexpr std::int64_t kPackStep = 4;
template <std::int64_t kTile, typename T>
HWY_INLINE void pack_square(const T* from, std::int64_t tile_stride, float* strip) {
  pack_four_by_four<kTile>(from, tile_stride, strip);
}
#endif

/// A full strip whose elements are adjacent along the depth. A cache line of a row is used up before the next row's is
/// touched: rows a power of two apart share a set of the cache. The strip behind a narrow one is brought near.
template <std::int64_t kTile, typename T>
void pack_along_depth(const T* from, std::int64_t tile_stride, std::int64_t depth, float* strip) {
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t whole = depth - depth % kPackStep;
  for (std::int64_t line = 0; line < whole; line += kLine) {
    const std::int64_t end = std::min(whole, line + kLine);
    for (std::int64_t i = 0; i < kTile; i += kPackStep) {
      for (std::int64_t row = i; kTile <= 8 && row < i + kPackStep; ++row) {
        __builtin_prefetch(from + (kTile + row) * tile_stride + line);  // may lie beyond the matrix
      }
      for (std::int64_t k = line; k < end; k += kPackStep) {
        pack_square<kTile>(from + i * tile_stride + k, tile_stride, strip + k * kTile + i);
      }
    }
  }
  for (std::int64_t k = whole; k < depth; ++k) {
    for (std::int64_t i = 0; i < kTile; ++i) strip[k * kTile + i] = static_cast<float>(from[i * tile_stride + k]);
  }
}

/// Full strips whose elements are adjacent along the tile, side by side: row by row, since each row of a wide matrix is
/// a page of its own.
template <std::int64_t kTile, typename T>
void pack_along_tile(const T* from, std::int64_t depth_stride, std::int64_t strips, std::int64_t depth, float* packed) {
  constexpr std::int64_t kRowsAhead = 8, kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t k = 0; k < depth; ++k) {
    const T* row = from + k * depth_stride;
    for (std::int64_t i = 0; i < strips * kTile; i += kLine) __builtin_prefetch(row + kRowsAhead * depth_stride + i);
    float* to = packed + k * kTile;
    for (std::int64_t strip = 0; strip < strips; ++strip, row += kTile, to += kTile * depth) {
      if constexpr (kTile % kPackLanes == 0) {
        for (std::int64_t i = 0; i < kTile; i += kPackLanes) store(load(FloatTag(), row + i), FloatTag(), to + i);
      } else {
        constexpr hn::CappedTag<float, kTile % 8 == 0 ? 8 : 4> d;
        constexpr auto kLanes = static_cast<std::int64_t>(hn::MaxLanes(d));
        for (std::int64_t i = 0; i < kTile; i += kLanes) hn::StoreU(load_lanes(d, row + i), d, to + i);
      }
    }
  }
}
#endif

/// Any strides; what the strip lacks is filled up with zeros.
template <std::int64_t kTile, typename T>
void pack_any(const T* from, std::int64_t tile_stride, std::int64_t depth_stride, std::int64_t filled,
              std::int64_t depth, float* strip) {
  for (std::int64_t k = 0; k < depth; ++k) {
    const T* row = from + k * depth_stride;
    float* to = strip + k * kTile;
    for (std::int64_t i = 0; i < filled; ++i) to[i] = static_cast<float>(row[i * tile_stride]);
    for (std::int64_t i = filled; i < kTile; ++i) to[i] = 0.0f;
  }
}

/// Packs `extent` rows of A or columns of B; `tile_stride` leads from one to the next.
template <std::int64_t kTile, typename T>
void pack_strips(const T* from, std::int64_t tile_stride, std::int64_t depth_stride, std::int64_t extent,
                 std::int64_t depth, float* packed) {
  std::int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
  const std::int64_t full = extent - extent % kTile;
  if (depth_stride == 1) {
    for (; done < full; done += kTile) {
      pack_along_depth<kTile>(from + done * tile_stride, tile_stride, depth, packed + done * depth);
    }
  } else if (tile_stride == 1) {
    pack_along_tile<kTile>(from, depth_stride, full / kTile, depth, packed);
    done = full;
  }
#endif
  for (; done < extent; done += kTile) {
    pack_any<kTile>(from + done * tile_stride, tile_stride, depth_stride, std::min(kTile, extent - done), depth,
                    packed + done * depth);
  }
}

template <std::int64_t kTile>
void pack_matrix(const MatrixOperand& matrix, std::int64_t tile_stride, std::int64_t depth_stride, std::int64_t extent,
                 std::int64_t depth, float* packed) {
  with_element_type(matrix.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    pack_strips<kTile>(static_cast<const T*>(matrix.data), tile_stride, depth_stride, extent, depth, packed);
  });
}

/// How a quantized matrix is read.
struct QuantizedReader {
  explicit QuantizedReader(DType dtype) : run(quantized_decoder(dtype)), columns(quantized_column_decoder(dtype)) {}
  DecodeRun run;
  DecodeColumns columns;
};

/// Columns of a quantized B whose elements are adjacent along the depth, a vector of columns at a time.
template <std::int64_t kTile>
void pack_quantized_along_depth(const MatrixOperand& b, DecodeColumns decode, std::int64_t columns, std::int64_t depth,
                                float* packed) {
  static_assert(kTile % kPackLanes == 0);
  constexpr std::int64_t kDepth = 64;  // at a time, which the first-level cache holds
  HWY_ALIGN float values[kDepth * kPackLanes];
  const QuantizedTensor tensor = {b.dtype, static_cast<const std::byte*>(b.data), b.elements};
  for (std::int64_t column = 0; column < columns; column += kPackLanes) {
    float* strip = packed + column / kTile * kTile * depth + column % kTile;
    const std::int64_t begin = b.first + column * b.column_stride, count = std::min(kPackLanes, columns - column);
    for (std::int64_t k = 0; k < depth;) {
      const std::int64_t there = std::min(kDepth - (begin + k) % kDepth, depth - k);
      decode(tensor, begin + k, b.column_stride, count, there, values);
      for (std::int64_t e = 0; e < there; ++e) {
        hn::StoreU(hn::Load(FloatTag(), values + e * kPackLanes), FloatTag(), strip + (k + e) * kTile);
      }
      k += there;
    }
  }
}

/// Columns of a quantized B that are adjacent: row by row, some strips at a time.
template <std::int64_t kTile>
void pack_quantized_along_tile(const MatrixOperand& b, DecodeRun decode, std::int64_t columns, std::int64_t depth,
                               float* packed) {
  constexpr std::int64_t kRun = 96 / kTile * kTile;  // as many as a block of C has
  static_assert(kRun > 0);
  HWY_ALIGN float run[kRun];
  const QuantizedTensor tensor = {b.dtype, static_cast<const std::byte*>(b.data), b.elements};
  for (std::int64_t column = 0; column < columns; column += kRun, packed += kRun * depth) {
    const std::int64_t count = std::min(kRun, columns - column);
    std::fill(run + count, run + kRun, 0.0f);
    for (std::int64_t k = 0; k < depth; ++k) {
      decode(tensor, b.first + k * b.row_stride + column, count, run);
      for (std::int64_t i = 0; i < count; i += kTile) {
        std::copy_n(run + i, kTile, packed + i * depth + k * kTile);
      }
    }
  }
}

/// Columns of a quantized B.
template <std::int64_t kTile>
void pack_quantized(const MatrixOperand& b, const QuantizedReader& reader, std::int64_t columns, std::int64_t depth,
                    float* packed) {
  if (b.row_stride == 1) {
    pack_quantized_along_depth<kTile>(b, reader.columns, columns, depth, packed);
  } else {
    pack_quantized_along_tile<kTile>(b, reader.run, columns, depth, packed);
  }
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
