// C = A * B + bias + addend by blocks. Rows of A are packed for all threads (shared scratch); then each index of
// parallel_for takes a block of C, packs its columns of B a depth block at a time into the thread's own scratch, where
// the second-level cache holds them, and multiplies. So B, mostly the weight, is read in place and once for every few
// hundred rows: with few rows (generation) a product is one pass over the weight. Overwrites C.
#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/cpu/matmul_kernels.h"
#include "kernels/cpu/matvec.h"

namespace heddle::cpu {
namespace {

/// Rows and columns of the block of C that one index of parallel_for computes: its parts of A (480 KiB), B (120 KiB)
/// and the sums (144 KiB) share the second-level cache.
constexpr std::int64_t kBlockRows = 384;
constexpr std::int64_t kBlockColumns = 96;
/// Rows that should at least share one packing of B.
constexpr std::int64_t kMinBlockRows = 96;
constexpr std::int64_t kBlocksPerThread = 8;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t round_up(std::int64_t a, std::int64_t multiple) { return ceil_div(a, multiple) * multiple; }

template <typename T>
T* advance(T* data, DType dtype, std::int64_t elements) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(data) + elements * static_cast<std::int64_t>(dtype_bytes(dtype));
}

/// How a product is cut. Only depth_block shows in the result.
struct Blocking {
  std::int64_t depth_block;
  std::int64_t group_depth;    ///< depth of which A is packed at a time, a multiple of depth_block
  std::int64_t panel_rows;     ///< rows of which A is packed at a time
  std::int64_t panel_columns;  ///< columns computed with them; all, unless partial sums have to wait for the next group
  std::int64_t block_rows;     ///< of one index of parallel_for; a multiple of row_tile
  std::int64_t block_columns;  ///< a multiple of column_tile

  /// Of a strip, packed block of depth by block of depth.
  std::int64_t words(const MatmulKernels& kernels, std::int64_t depth) const {
    return depth / depth_block * kernels.words(depth_block) + kernels.words(depth % depth_block);
  }
};

/// Cuts `extent` into the fewest equal parts, each a multiple of `tile` and at most about `most`.
std::int64_t even_part(std::int64_t extent, std::int64_t most, std::int64_t tile) {
  const std::int64_t tiles = ceil_div(extent, tile);
  const std::int64_t parts = ceil_div(tiles, std::max<std::int64_t>(1, most / tile));
  return ceil_div(tiles, parts) * tile;
}

Blocking choose_blocking(const MatrixProduct& p, const MatmulKernels& kernels, const Scratch& scratch) {
  Blocking blocking;
  const auto shared_words = static_cast<std::int64_t>(scratch.shared_bytes / sizeof(float));
  const std::int64_t rows = round_up(p.rows, kernels.row_tile);
  blocking.depth_block = p.depth_block > 0 ? p.depth_block : depth_block(p.depth);
  blocking.panel_columns = p.columns;
  const std::int64_t row_words = blocking.words(kernels, p.depth);
  if (std::min(rows, kBlockRows) * row_words <= shared_words) {
    blocking.group_depth = p.depth;
    blocking.panel_rows = even_part(p.rows, shared_words / row_words, kernels.row_tile);
  } else {
    // Half of the scratch for A, half for the sums that are carried from group to group.
    blocking.panel_rows = even_part(p.rows, kBlockRows, kernels.row_tile);
    const std::int64_t blocks = shared_words / 2 / blocking.panel_rows / kernels.words(blocking.depth_block);
    blocking.group_depth = blocks * blocking.depth_block;
    const std::int64_t room = shared_words / 2 / (blocking.panel_rows + kernels.row_tile) - kBlockColumns;
    blocking.panel_columns = even_part(p.columns, room, kernels.column_tile);
    HEDDLE_CHECK(blocking.group_depth > 0);
  }
  blocking.block_rows = even_part(std::min(p.rows, blocking.panel_rows), kBlockRows, kernels.row_tile);
  blocking.block_columns = even_part(blocking.panel_columns, kBlockColumns, kernels.column_tile);
  // Smaller blocks where there would be too few to spread over the threads.
  const std::int64_t wanted = kBlocksPerThread * threads();
  const auto count = [&] {
    return ceil_div(std::min(p.rows, blocking.panel_rows), blocking.block_rows) *
           ceil_div(blocking.panel_columns, blocking.block_columns);
  };
  if (threads() > 1) {
    while (count() < wanted && blocking.block_columns > kernels.column_tile) {
      blocking.block_columns -= kernels.column_tile;
    }
    while (count() < wanted && blocking.block_rows >= 2 * kMinBlockRows) {
      blocking.block_rows = round_up(blocking.block_rows / 2, kernels.row_tile);
    }
  }
  const std::int64_t words = blocking.block_columns * (kernels.words(blocking.depth_block) + blocking.block_rows);
  HEDDLE_CHECK(static_cast<std::size_t>(words) * sizeof(float) <= scratch.bytes_per_thread);
  return blocking;
}

/// What stays the same over the blocks of one panel and group.
struct Panel {
  std::int64_t row, rows, column, columns, depth_begin, depth;
};

void pack_panel(const MatrixProduct& p, const MatmulKernels& kernels, const Blocking& blocking, const Panel& panel,
                float* packed) {
  const std::int64_t strips_per_index = std::min<std::int64_t>(8, 64 / kernels.row_tile);
  const std::int64_t strips = ceil_div(panel.rows, kernels.row_tile);
  const std::int64_t runs = ceil_div(strips, strips_per_index);
  parallel_for(runs * ceil_div(panel.depth, blocking.depth_block), [&](std::int64_t index, int) {
    const std::int64_t k = index / runs * blocking.depth_block;
    const std::int64_t depth = std::min(blocking.depth_block, panel.depth - k);
    const std::int64_t row = index % runs * strips_per_index * kernels.row_tile;
    kernels.pack_a(submatrix(p.a, panel.row + row, panel.depth_begin + k),
                   std::min(strips_per_index * kernels.row_tile, panel.rows - row), depth,
                   packed + strips * kernels.row_tile * blocking.words(kernels, k) + row * kernels.words(depth));
  });
}

/// `carried` holds the sums of all blocks from group to group; null when there is one group.
void multiply_panel(const MatrixProduct& p, const MatmulKernels& kernels, const Blocking& blocking, const Panel& panel,
                    const float* packed, float* carried, const Scratch& scratch) {
  const std::int64_t row_blocks = ceil_div(panel.rows, blocking.block_rows);
  const std::int64_t column_blocks = ceil_div(panel.columns, blocking.block_columns);
  const std::int64_t block_floats = blocking.block_rows * blocking.block_columns;
  HEDDLE_CHECK(carried == nullptr || static_cast<std::size_t>(row_blocks * column_blocks * block_floats) <=
                                         scratch.shared_bytes / sizeof(float) / 2);
  parallel_for(row_blocks * column_blocks, [&](std::int64_t index, int thread) {
    const std::int64_t row = index / column_blocks * blocking.block_rows;
    const std::int64_t column = index % column_blocks * blocking.block_columns;
    auto* own =
        reinterpret_cast<float*>(scratch.per_thread + static_cast<std::size_t>(thread) * scratch.bytes_per_thread);
    const std::int64_t c_row = panel.row + row, c_column = panel.column + column;
    MatmulBlock block;
    block.rows = std::min(blocking.block_rows, panel.rows - row);
    block.columns = std::min(blocking.block_columns, panel.columns - column);
    block.depth = panel.depth;
    block.depth_block = blocking.depth_block;
    block.a = packed;
    block.a_rows = round_up(panel.rows, kernels.row_tile);
    block.a_first_strip = row / kernels.row_tile;
    block.b = submatrix(p.b, panel.depth_begin, c_column);
    block.packed_b = own;
    block.partial = carried == nullptr ? own + blocking.block_columns * kernels.words(blocking.depth_block)
                                       : carried + index * block_floats;
    block.first = panel.depth_begin == 0;
    block.starts_at_c = block.first && p.starts_at_c;
    block.last = panel.depth_begin + panel.depth == p.depth;
    block.c = advance(p.c, p.c_dtype, c_row * p.c_row_stride + c_column);
    block.c_dtype = p.c_dtype;
    block.c_row_stride = p.c_row_stride;
    block.addend = p.addend == nullptr ? nullptr : advance(p.addend, p.c_dtype, c_row * p.addend_row_stride + c_column);
    block.addend_row_stride = p.addend_row_stride;
    block.bias = p.bias == nullptr ? nullptr : advance(p.bias, p.bias_dtype, c_column);
    block.bias_dtype = p.bias_dtype;
    kernels.multiply(block);
  });
}

}  // namespace

std::int64_t depth_block(std::int64_t depth) { return round_up(ceil_div(depth, ceil_div(depth, kMaxDepthBlock)), 8); }

void matmul(const MatrixProduct& product, const Scratch& scratch) {
  const MatrixProduct& p = product;
  if (p.rows == 0 || p.columns == 0) return;
  HEDDLE_CHECK(p.rows > 0 && p.columns > 0 && p.depth > 0);
  HEDDLE_CHECK(scratch.threads >= threads());
  HEDDLE_CHECK(!is_quantized(p.b.dtype) || p.b.row_stride == 1 || p.b.column_stride == 1);
  HEDDLE_CHECK(p.depth_block <= kMaxDepthBlock && !(p.starts_at_c && p.c_dtype != DType::f32));
  if (p.rows == 1 && multiply_row({&p, 1}, scratch)) return;
  const bool is_bf16 = p.a.dtype == DType::bf16 && p.b.dtype == DType::bf16;
  const MatmulKernels& kernels = matmul_kernels(is_bf16 ? DType::bf16 : p.compute_dtype);
  const Blocking blocking = choose_blocking(p, kernels, scratch);
  auto* packed = reinterpret_cast<float*>(scratch.shared);
  float* carried = blocking.group_depth < p.depth ? packed + scratch.shared_bytes / sizeof(float) / 2 : nullptr;
  Panel panel;
  for (panel.row = 0; panel.row < p.rows; panel.row += blocking.panel_rows) {
    panel.rows = std::min(blocking.panel_rows, p.rows - panel.row);
    for (panel.column = 0; panel.column < p.columns; panel.column += blocking.panel_columns) {
      panel.columns = std::min(blocking.panel_columns, p.columns - panel.column);
      for (panel.depth_begin = 0; panel.depth_begin < p.depth; panel.depth_begin += blocking.group_depth) {
        panel.depth = std::min(blocking.group_depth, p.depth - panel.depth_begin);
        pack_panel(p, kernels, blocking, panel, packed);
        multiply_panel(p, kernels, blocking, panel, packed, carried, scratch);
      }
    }
  }
}

}  // namespace heddle::cpu
