// A block of C tile by tile: what all kinds of factors share. A tile of C, kRowTile rows of kTileVectors vectors, stays
// in registers while one depth block of a strip of A and of a strip of B pass by: each step of depth loads the row of B
// once and broadcasts kRowTile elements of A. Per-target include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_MATMUL_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_MATMUL_TILES_INL_H_
#undef HEDDLE_KERNELS_CPU_MATMUL_TILES_INL_H_
#else
#define HEDDLE_KERNELS_CPU_MATMUL_TILES_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/matmul_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

// 24 sums, 3 vectors of B and a broadcast leave some of 32 registers free for loads in flight; 12 sums, 3 vectors and a
// broadcast are all of 16. On AVX-512, 8 x 3 vectors ran 3% faster than 12 x 2 over the shapes of bench/matmul.cpp.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
inline constexpr std::int64_t kRowTile = 8;
#else
inline constexpr std::int64_t kRowTile = 4;
#endif
inline constexpr std::int64_t kTileVectors = 3;
inline constexpr std::int64_t kTileLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));
inline constexpr std::int64_t kColumnTile = kTileVectors * kTileLanes;
static_assert(kRowTile % 4 == 0, "packing goes by four");

/// sums[rows, columns] (+)= A strip * B strip over `depth`; rows of `sums` are `stride` apart. For one number of rows
/// and of columns.
using TileFunction = void (*)(const float* a, const float* b, std::int64_t depth, bool add, float* sums,
                              std::int64_t stride);
/// By vectors - 1, then rows - 1.
using TileFunctions = std::array<std::array<TileFunction, kRowTile>, kTileVectors>;

template <template <int, int> class Tile, int kVectors, int... kRowIndex>
constexpr std::array<TileFunction, kRowTile> tiles_of_width(std::integer_sequence<int, kRowIndex...>) {
  return {&Tile<kRowIndex + 1, kVectors>::multiply...};
}
template <template <int, int> class Tile, int... kVectorIndex>
constexpr TileFunctions tiles_of_widths(std::integer_sequence<int, kVectorIndex...>) {
  return {tiles_of_width<Tile, kVectorIndex + 1>(std::make_integer_sequence<int, kRowTile>())...};
}
/// Tile<rows, vectors>::multiply for all sizes of a tile.
template <template <int, int> class Tile>
constexpr TileFunctions tile_functions() {
  return tiles_of_widths<Tile>(std::make_integer_sequence<int, kTileVectors>());
}

template <int kRows, int kVectors>
HWY_INLINE void clear_tile(FloatVector (&sum)[kRows][kVectors]) {
  HWY_UNROLL(16)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < kVectors; ++j) sum[i][j] = hn::Zero(FloatTag());
  }
}

template <int kRows, int kVectors>
HWY_INLINE void store_tile(const FloatVector (&sum)[kRows][kVectors], bool add, float* HWY_RESTRICT sums,
                           std::int64_t stride) {
  const FloatTag d;
  HWY_UNROLL(16)
  for (int i = 0; i < kRows; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < kVectors; ++j) {
      float* to = sums + i * stride + j * kTileLanes;
      hn::StoreU(add ? hn::Add(hn::LoadU(d, to), sum[i][j]) : sum[i][j], d, to);
    }
  }
}

/// Finished sums go to C, with what is added to them; the only rounding to C's type. kRows and kColumns are those of a
/// whole tile, here and below.
template <std::int64_t kRows, std::int64_t kColumns, typename T, typename Bias>
void finish_tile(const MatmulBlock& block, std::int64_t row, std::int64_t column, const float* sums) {
  const FloatTag d;
  const std::int64_t rows = std::min(kRows, block.rows - row);
  const std::int64_t columns = std::min(kColumns, block.columns - column);
  const auto* bias = block.bias == nullptr ? nullptr : static_cast<const Bias*>(block.bias) + column;
  for (std::int64_t i = 0; i < rows; ++i, sums += kColumns) {
    T* c = static_cast<T*>(block.c) + (row + i) * block.c_row_stride + column;
    const T* addend = block.addend == nullptr
                          ? nullptr
                          : static_cast<const T*>(block.addend) + (row + i) * block.addend_row_stride + column;
    std::int64_t j = 0;
    for (; j + kTileLanes <= columns; j += kTileLanes) {
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

/// Sums begin at what C holds, in f32.
template <std::int64_t kRows, std::int64_t kColumns>
void load_tile(const MatmulBlock& block, std::int64_t row, std::int64_t column, float* sums) {
  const FloatTag d;
  const std::int64_t rows = std::min(kRows, block.rows - row);
  const std::int64_t columns = std::min(kColumns, block.columns - column);
  const auto* c = static_cast<const float*>(block.c) + row * block.c_row_stride + column;
  for (std::int64_t i = 0; i < rows; ++i, sums += kColumns, c += block.c_row_stride) {
    for (std::int64_t j = 0; j < kColumns; j += kTileLanes) {
      const std::int64_t rest = std::clamp<std::int64_t>(columns - j, 0, kTileLanes);
      hn::Store(rest == kTileLanes ? hn::LoadU(d, c + j) : load_first(d, c + j, static_cast<std::size_t>(rest)), d,
                sums + j);
    }
  }
}

/// Brings the part of C near that the next tile will finish.
inline void prefetch_result(const MatmulBlock& block, std::int64_t row, std::int64_t rows, std::int64_t column,
                            std::int64_t columns) {
  const auto element = static_cast<std::int64_t>(dtype_bytes(block.c_dtype));
  const std::int64_t bytes = columns * element;
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

template <std::int64_t kRows, std::int64_t kColumns>
FinishFunction finish_function(const MatmulBlock& block) {
  FinishFunction function = nullptr;
  with_element_type(block.c_dtype, [&](auto* c_type) {
    with_element_type(block.bias_dtype, [&](auto* bias_type) {
      function = &finish_tile<kRows, kColumns, std::remove_pointer_t<decltype(c_type)>,
                              std::remove_pointer_t<decltype(bias_type)>>;
    });
  });
  return function;
}

/// Factors whose tiles are vectors in registers. `Packing` says how operands are packed, the same way for both, and how
/// tiles are multiplied: kDepthStep, kWordsPerStep, pack<kTile>, pack_quantized<kTile> and kTiles.
template <class Packing>
struct VectorFactors : Packing {
  static constexpr std::int64_t kTileRows = kRowTile, kTileColumns = kColumnTile;
  static constexpr std::int64_t kRowStep = 1, kColumnStep = kTileLanes;
  struct Scope {};

  static void pack_rows(const MatrixOperand& a, std::int64_t rows, std::int64_t depth, float* packed) {
    Packing::template pack<kRowTile>(a, a.row_stride, a.column_stride, rows, depth, packed);
  }
  static void pack_columns(const MatrixOperand& b, std::int64_t columns, std::int64_t depth, float* packed) {
    Packing::template pack<kColumnTile>(b, b.column_stride, b.row_stride, columns, depth, packed);
  }
  static void pack_quantized_columns(const MatrixOperand& b, const QuantizedReader& reader, std::int64_t columns,
                                     std::int64_t depth, float* packed) {
    Packing::template pack_quantized<kColumnTile>(b, reader, columns, depth, packed);
  }
};

// `Factors` below are of that form. kTiles has a function for each number of rows, in steps of kRowStep, within each
// number of columns, in steps of kColumnStep. A Scope is there while tiles are multiplied.

/// Packs columns of B, block of depth by block of depth.
template <class Factors>
class ColumnPacker {
 public:
  explicit ColumnPacker(const MatrixOperand& b) : b_(b) {
    if (is_quantized(b.dtype)) reader_.emplace(b.dtype);
  }
  void pack(std::int64_t depth_begin, std::int64_t depth, std::int64_t columns, float* packed) const {
    const MatrixOperand b = submatrix(b_, depth_begin, 0);
    if (reader_) {
      Factors::pack_quantized_columns(b, *reader_, columns, depth, packed);
    } else {
      Factors::pack_columns(b, columns, depth, packed);
    }
  }

 private:
  MatrixOperand b_;
  std::optional<QuantizedReader> reader_;
};

/// Brings `rows` by `columns` elements of an operand near, a few lines at a time, while others are multiplied.
class OperandPrefetcher {
 public:
  /// `steps`: calls of step() until all is asked for.
  OperandPrefetcher(const MatrixOperand& m, std::int64_t rows, std::int64_t columns, std::int64_t steps) {
    const bool by_columns = m.row_stride == 1;
    if (is_quantized(m.dtype) || (!by_columns && m.column_stride != 1)) return;
    const auto element = static_cast<std::int64_t>(dtype_bytes(m.dtype));
    run_ = static_cast<const char*>(m.data);
    run_bytes_ = (by_columns ? rows : columns) * element;
    stride_ = (by_columns ? m.column_stride : m.row_stride) * element;
    runs_ = by_columns ? columns : rows;
    per_step_ = (runs_ * ((run_bytes_ + kLine - 1) / kLine) + steps - 1) / steps;
  }
  void step() {
    for (std::int64_t n = 0; n < per_step_ && runs_ > 0; ++n) {
      __builtin_prefetch(run_ + at_, 0, 2);
      at_ += kLine;
      if (at_ < run_bytes_) continue;
      at_ = 0;
      run_ += stride_;
      --runs_;
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;
  const char* run_ = nullptr;
  std::int64_t run_bytes_ = 0, stride_ = 0, runs_ = 0, per_step_ = 0, at_ = 0;
};

template <class Factors>
void multiply(const MatmulBlock& block);

template <class Factors>
inline constexpr MatmulKernels kKernels = {Factors::kTileRows,     Factors::kTileColumns, Factors::kDepthStep,
                                           Factors::kWordsPerStep, &Factors::pack_rows,   &multiply<Factors>};

template <class Factors>
void multiply(const MatmulBlock& block) {
  constexpr std::int64_t kRows = Factors::kTileRows, kColumns = Factors::kTileColumns;
  [[maybe_unused]] const typename Factors::Scope scope{};
  const ColumnPacker<Factors> packer(block.b);
  const FinishFunction finish = finish_function<kRows, kColumns>(block);
  // Sums of f32 without addends wait for the next depth block where they end.
  const bool in_place =
      block.first && block.last && block.c_dtype == DType::f32 && block.addend == nullptr && block.bias == nullptr;
  const std::int64_t row_strips = (block.rows + kRows - 1) / kRows;
  const std::int64_t column_strips = (block.columns + kColumns - 1) / kColumns;
  for (std::int64_t k = 0; k < block.depth; k += block.depth_block) {
    const std::int64_t depth = std::min(block.depth_block, block.depth - k);
    const std::int64_t words = kKernels<Factors>.words(depth);
    const bool starts_at_c = block.starts_at_c && k == 0;
    const bool adds = !block.first || k > 0 || starts_at_c;
    const bool finished = block.last && k + depth == block.depth;
    packer.pack(k, depth, block.columns, block.packed_b);
    const float* a_block = block.a + k / block.depth_block * kKernels<Factors>.words(block.depth_block) * block.a_rows;
    const std::int64_t rest = block.depth - k - depth, tiles = row_strips * column_strips;
    OperandPrefetcher coming =
        rest > 0 ? OperandPrefetcher(submatrix(block.b, k + depth, 0), std::min(block.depth_block, rest), block.columns,
                                     tiles)
                 : OperandPrefetcher(submatrix(block.b, 0, block.columns), std::min(block.depth_block, block.depth),
                                     block.coming_columns, tiles);
    const float* b_strip = block.packed_b;
    float* sums = block.partial;
    for (std::int64_t column = 0; column < block.columns; column += kColumns, b_strip += kColumns * words) {
      const std::int64_t columns = std::min(kColumns, block.columns - column);
      const auto& functions = Factors::kTiles[static_cast<std::size_t>((columns - 1) / Factors::kColumnStep)];
      const float* a_strip = a_block + block.a_first_strip * kRows * words;
      for (std::int64_t strip = 0; strip < row_strips; ++strip) {
        const std::int64_t rows = std::min(kRows, block.rows - strip * kRows);
        coming.step();
        const TileFunction function = functions[static_cast<std::size_t>((rows - 1) / Factors::kRowStep)];
        if (finished || in_place) prefetch_result(block, strip * kRows, rows, column, columns);
        if (in_place && rows % Factors::kRowStep == 0 && columns % Factors::kColumnStep == 0) {
          float* c = static_cast<float*>(block.c) + strip * kRows * block.c_row_stride + column;
          function(a_strip, b_strip, words, adds, c, block.c_row_stride);
        } else {
          if (starts_at_c) load_tile<kRows, kColumns>(block, strip * kRows, column, sums);
          function(a_strip, b_strip, words, adds, sums, kColumns);
          if (finished) finish(block, strip * kRows, column, sums);
        }
        a_strip += kRows * words;
        sums += kRows * kColumns;
      }
    }
  }
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
