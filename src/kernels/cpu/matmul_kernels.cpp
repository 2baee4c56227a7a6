// The inner loops of the matrix product. A tile of C, kRowTile rows of kTileVectors vectors, stays in registers while
// one depth block of a strip of A and of a strip of B pass by: each step of depth loads the row of B once and
// broadcasts kRowTile elements of A. Overwrites what it is given to write; nothing is added to but partial sums.
#include "kernels/cpu/matmul_kernels.h"

#include <array>
#include <utility>

// Scalable vectors cannot stand in arrays, as the registers of a tile do; processors with SVE have NEON too.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_kernels.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <algorithm>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace {

// 24 sums, 3 vectors of B and a broadcast leave some of 32 registers free for loads in flight; 12 sums, 3 vectors and a
// broadcast are all of 16. On AVX-512, 8 x 3 vectors ran 3% faster than 12 x 2 over the shapes of bench/matmul.cpp.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
constexpr std::int64_t kRowTile = 8;
#else
constexpr std::int64_t kRowTile = 4;
#endif
constexpr std::int64_t kTileVectors = 3;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));
constexpr std::int64_t kColumnTile = kTileVectors * kLanes;
static_assert(kRowTile % 4 == 0, "packing goes by four");

#if HWY_TARGET != HWY_SCALAR
using FourTag = hn::FixedTag<float, 4>;
using FourVector = hn::Vec<FourTag>;

HWY_INLINE FourVector load_four(const float* from) { return hn::LoadU(FourTag(), from); }
HWY_INLINE FourVector load_four(const BFloat16* from) {
  const hn::Rebind<std::uint16_t, FourTag> narrow;
  const hn::Rebind<std::uint32_t, FourTag> wide;
  return hn::BitCast(FourTag(), hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, &from->bits))));
}
HWY_INLINE FourVector load_four(const Float16* from) {
#if HWY_TARGET == HWY_EMU128
  return load(FourTag(), from);
#else
  const hn::Rebind<hwy::float16_t, FourTag> narrow;
  return hn::PromoteTo(FourTag(), hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(from)));
#endif
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

/// A full strip whose elements are adjacent along the depth. A cache line of a row is used up before the next row's is
/// touched: rows a power of two apart share a set of the cache.
template <std::int64_t kTile, typename T>
void pack_along_depth(const T* from, std::int64_t tile_stride, std::int64_t depth, float* strip) {
  constexpr std::int64_t kLinesAhead = 4;
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t whole = depth - depth % 4;
  for (std::int64_t line = 0; line < whole; line += kLine) {
    const std::int64_t end = std::min(whole, line + kLine);
    for (std::int64_t i = 0; i < kTile; i += 4) {
      for (std::int64_t row = i; row < i + 4; ++row) {
        __builtin_prefetch(from + row * tile_stride + line + kLinesAhead * kLine);  // may lie beyond the matrix
      }
      for (std::int64_t k = line; k < end; k += 4) {
        pack_four_by_four<kTile>(from + i * tile_stride + k, tile_stride, strip + k * kTile + i);
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
  for (std::int64_t k = 0; k < depth; ++k) {
    const T* row = from + k * depth_stride;
    float* to = packed + k * kTile;
    for (std::int64_t strip = 0; strip < strips; ++strip, row += kTile, to += kTile * depth) {
      if constexpr (kTile % kLanes == 0) {
        for (std::int64_t i = 0; i < kTile; i += kLanes) store(load(FloatTag(), row + i), FloatTag(), to + i);
      } else {
        for (std::int64_t i = 0; i < kTile; i += 4) hn::StoreU(load_four(row + i), FourTag(), to + i);
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

void pack_a(const MatrixOperand& a, std::int64_t rows, std::int64_t depth, float* packed) {
  with_element_type(a.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    pack_strips<kRowTile>(static_cast<const T*>(a.data), a.row_stride, a.column_stride, rows, depth, packed);
  });
}

void pack_b(const MatrixOperand& b, std::int64_t columns, std::int64_t depth, float* packed) {
  with_element_type(b.dtype, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    pack_strips<kColumnTile>(static_cast<const T*>(b.data), b.column_stride, b.row_stride, columns, depth, packed);
  });
}

/// sums[kRows, kVectors vectors] (+)= A strip * B strip over `depth`; rows of `sums` are kColumnTile apart.
template <int kRows, int kVectors>
void multiply_tile(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, std::int64_t depth, bool add,
                   float* HWY_RESTRICT sums) {
  const FloatTag d;
  FloatVector sum[kRows][kVectors];
  HWY_UNROLL(16)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::Zero(d);
  }
  for (std::int64_t k = 0; k < depth; ++k) {
    FloatVector row[kVectors];
    HWY_UNROLL(4)
    for (int j = 0; j < kVectors; ++j) row[j] = hn::Load(d, b + j * kLanes);
    HWY_UNROLL(16)
    for (int i = 0; i < kRows; ++i) {
      const FloatVector element = hn::Set(d, a[i]);
      HWY_UNROLL(4)
      for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::MulAdd(element, row[j], sum[i][j]);
    }
    a += kRowTile;
    b += kColumnTile;
  }
  HWY_UNROLL(16)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < kVectors; ++j) {
      float* to = sums + i * kColumnTile + j * kLanes;
      hn::Store(add ? hn::Add(hn::Load(d, to), sum[i][j]) : sum[i][j], d, to);
    }
  }
}

using TileFunction = void (*)(const float*, const float*, std::int64_t, bool, float*);

template <int kVectors, int... kRowIndex>
constexpr std::array<TileFunction, kRowTile> tile_functions(std::integer_sequence<int, kRowIndex...>) {
  return {&multiply_tile<kRowIndex + 1, kVectors>...};
}

template <int... kVectorIndex>
constexpr std::array<std::array<TileFunction, kRowTile>, kTileVectors> all_tile_functions(
    std::integer_sequence<int, kVectorIndex...>) {
  return {tile_functions<kVectorIndex + 1>(std::make_integer_sequence<int, kRowTile>())...};
}

/// By vectors - 1, then rows - 1.
constexpr auto kTileFunctions = all_tile_functions(std::make_integer_sequence<int, kTileVectors>());

/// Finished sums go to C, with what is added to them; the only rounding to C's type.
template <typename T, typename Bias>
void finish_tile(const MatmulBlock& block, std::int64_t row, std::int64_t column, const float* sums) {
  const FloatTag d;
  const std::int64_t rows = std::min(kRowTile, block.rows - row);
  const std::int64_t columns = std::min(kColumnTile, block.columns - column);
  const auto* bias = block.bias == nullptr ? nullptr : static_cast<const Bias*>(block.bias) + column;
  for (std::int64_t i = 0; i < rows; ++i, sums += kColumnTile) {
    T* c = static_cast<T*>(block.c) + (row + i) * block.c_row_stride + column;
    const T* addend = block.addend == nullptr
                          ? nullptr
                          : static_cast<const T*>(block.addend) + (row + i) * block.addend_row_stride + column;
    std::int64_t j = 0;
    for (; j + kLanes <= columns; j += kLanes) {
      auto value = hn::Load(d, sums + j);
      if (bias != nullptr) value = hn::Add(value, load(d, bias + j));
      if (addend != nullptr) value = hn::Add(value, load(d, addend + j));
      store(value, d, c + j);
    }
    if (j < columns) {
      const auto rest = static_cast<std::size_t>(columns - j);
      auto value = hn::Load(d, sums + j);
      if (bias != nullptr) value = hn::Add(value, load_first(d, bias + j, rest));
      if (addend != nullptr) value = hn::Add(value, load_first(d, addend + j, rest));
      store_first(value, d, c + j, rest);
    }
  }
}

/// Brings the part of C near that the next tile will finish.
void prefetch_result(const MatmulBlock& block, std::int64_t row, std::int64_t rows, std::int64_t column) {
  const auto element = static_cast<std::int64_t>(dtype_bytes(block.c_dtype));
  const std::int64_t bytes = std::min(kColumnTile, block.columns - column) * element;
  const char* c = static_cast<const char*>(block.c) + (row * block.c_row_stride + column) * element;
  const char* addend = static_cast<const char*>(block.addend);
  if (addend != nullptr) addend += (row * block.addend_row_stride + column) * element;
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < bytes; j += 64) {
      __builtin_prefetch(c + i * block.c_row_stride * element + j, 1);
      if (addend != nullptr && addend != c) __builtin_prefetch(addend + i * block.addend_row_stride * element + j);
    }
  }
}

using FinishFunction = void (*)(const MatmulBlock&, std::int64_t, std::int64_t, const float*);

FinishFunction finish_function(const MatmulBlock& block) {
  FinishFunction function = nullptr;
  with_element_type(block.c_dtype, [&](auto* c_type) {
    with_element_type(block.bias_dtype, [&](auto* bias_type) {
      function = &finish_tile<std::remove_pointer_t<decltype(c_type)>, std::remove_pointer_t<decltype(bias_type)>>;
    });
  });
  return function;
}

void multiply(const MatmulBlock& block) {
  const FinishFunction finish = finish_function(block);
  const std::int64_t row_strips = (block.rows + kRowTile - 1) / kRowTile;
  for (std::int64_t k = 0; k < block.depth; k += block.depth_block) {
    const std::int64_t depth = std::min(block.depth_block, block.depth - k);
    const bool overwrite = block.first && k == 0;
    const bool finished = block.last && k + depth == block.depth;
    MatrixOperand b = block.b;
    b.data = static_cast<const std::byte*>(b.data) + k * b.row_stride * static_cast<std::int64_t>(dtype_bytes(b.dtype));
    pack_b(b, block.columns, depth, block.packed_b);
    const float* b_strip = block.packed_b;
    float* sums = block.partial;
    for (std::int64_t column = 0; column < block.columns; column += kColumnTile, b_strip += kColumnTile * depth) {
      const std::int64_t vectors = std::min(kTileVectors, (block.columns - column + kLanes - 1) / kLanes);
      const auto& functions = kTileFunctions[static_cast<std::size_t>(vectors - 1)];
      const float* a_strip = block.a + k * block.a_rows + block.a_first_strip * kRowTile * depth;
      for (std::int64_t strip = 0; strip < row_strips; ++strip) {
        const std::int64_t rows = std::min(kRowTile, block.rows - strip * kRowTile);
        if (finished) prefetch_result(block, strip * kRowTile, rows, column);
        functions[static_cast<std::size_t>(rows - 1)](a_strip, b_strip, depth, !overwrite, sums);
        if (finished) finish(block, strip * kRowTile, column, sums);
        a_strip += kRowTile * depth;
        sums += kRowTile * kColumnTile;
      }
    }
  }
}

}  // namespace

const MatmulKernels& kernels() {
  static constexpr MatmulKernels kernels = {kRowTile, kColumnTile, &pack_a, &multiply};
  return kernels;
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {

HWY_EXPORT(kernels);

const MatmulKernels& matmul_kernels() { return HWY_DYNAMIC_DISPATCH(kernels)(); }

}  // namespace heddle::cpu
#endif
