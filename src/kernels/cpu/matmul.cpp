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

/// Rows and columns of the block of C that one index of parallel_for computes. Its part of B (60 KiB) stays in the
/// second-level cache; A passes by for each strip of B, in order and slowly enough to come from the cache behind.
constexpr std::int64_t kBlockRows = 1024;
constexpr std::int64_t kBlockColumns = 48;
/// The same where the depth is cut into groups.
constexpr std::int64_t kGroupedRows = 512;
/// Rows that should at least share one packing of B.
constexpr std::int64_t kMinBlockRows = 96;
/// Rows of a share where packed A is as small as this: with fewer it costs less that threads read what others packed of
/// A than that each packs all of B.
constexpr std::int64_t kMinSmallShareRows = 256;
constexpr std::int64_t kSmallWords = std::int64_t{1} << 18;
/// Rows of which all of A's depth should at least fit into the scratch: else it is cut into groups.
constexpr std::int64_t kMinPanelRows = 384;
constexpr std::int64_t kBlocksPerThread = 4;
/// Two lines of a cache: half of that is aligned to a vector.
constexpr std::int64_t kLineFloats = 32;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t round_up(std::int64_t a, std::int64_t multiple) { return ceil_div(a, multiple) * multiple; }

template <typename T>
T* advance(T* data, DType dtype, std::int64_t elements) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(data) + elements * static_cast<std::int64_t>(dtype_bytes(dtype));
}

/// How a product is cut. Only depth_block shows in the result. Rows are dealt out in shares, one for each thread where
/// they suffice: a thread packs and multiplies the rows of its share, in its part of the scratch, unless another one
/// has nothing left to do.
struct Blocking {
  std::int64_t depth_block;
  std::int64_t group_depth;  ///< depth of which A is packed at a time, a multiple of depth_block
  std::int64_t shares;
  std::int64_t share_rows;     ///< a multiple of row_tile
  std::int64_t share_words;    ///< of the scratch
  std::int64_t panel_rows;     ///< rows of each share of which A is packed at a time
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

/// Sets how rows are dealt out: `least_rows` to a share, with room for the `row_words` of some.
void deal_rows(Blocking& blocking, const MatrixProduct& p, const MatmulKernels& kernels, std::int64_t shared_words,
               std::int64_t row_words, std::int64_t least_rows) {
  const std::int64_t most = std::min(p.rows / least_rows, shared_words / (kMinBlockRows * row_words));
  blocking.shares = std::clamp<std::int64_t>(most, 1, threads());
  blocking.share_rows = round_up(ceil_div(p.rows, blocking.shares), kernels.row_tile);
  blocking.share_words = shared_words / blocking.shares / kLineFloats * kLineFloats;
}

Blocking choose_blocking(const MatrixProduct& p, const MatmulKernels& kernels, const Scratch& scratch) {
  Blocking blocking;
  const auto shared_words = static_cast<std::int64_t>(scratch.shared_bytes / sizeof(float));
  blocking.depth_block = p.depth_block > 0 ? p.depth_block : depth_block(p.depth);
  blocking.panel_columns = p.columns;
  const std::int64_t row_words = blocking.words(kernels, p.depth);
  std::int64_t most_rows = kBlockRows;
  if (std::min(round_up(p.rows, kernels.row_tile), kMinPanelRows) * row_words <= shared_words) {
    const bool is_small = p.rows * row_words <= kSmallWords;
    deal_rows(blocking, p, kernels, shared_words, row_words, is_small ? kMinSmallShareRows : kMinBlockRows);
    blocking.group_depth = p.depth;
    blocking.panel_rows = even_part(blocking.share_rows, blocking.share_words / row_words, kernels.row_tile);
  } else {
    // Half of the scratch for A, half for the sums that are carried from group to group.
    const std::int64_t block_words = kernels.words(blocking.depth_block);
    deal_rows(blocking, p, kernels, shared_words, 2 * block_words, kMinBlockRows);
    const std::int64_t half = blocking.share_words / 2;
    most_rows = kGroupedRows;
    blocking.panel_rows = even_part(blocking.share_rows, std::min(most_rows, half / block_words), kernels.row_tile);
    blocking.group_depth = half / blocking.panel_rows / block_words * blocking.depth_block;
    const std::int64_t room = half / (blocking.panel_rows + kernels.row_tile) - kBlockColumns;
    blocking.panel_columns = even_part(p.columns, room, kernels.column_tile);
    HEDDLE_CHECK(blocking.group_depth > 0);
  }
  blocking.block_rows = even_part(blocking.panel_rows, most_rows, kernels.row_tile);
  blocking.block_columns = even_part(blocking.panel_columns, kBlockColumns, kernels.column_tile);
  // Smaller blocks where there would be too few to spread over the threads.
  const std::int64_t wanted = kBlocksPerThread * threads();
  const auto count = [&] {
    return blocking.shares * ceil_div(blocking.panel_rows, blocking.block_rows) *
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
  std::int64_t row;  ///< within each share
  std::int64_t column, columns, depth_begin, depth;
};

/// The rows of a share in a panel; the last shares may have none.
struct Rows {
  std::int64_t begin, count;
};
Rows rows_of(const MatrixProduct& p, const Blocking& blocking, const Panel& panel, std::int64_t share) {
  const std::int64_t begin = share * blocking.share_rows + panel.row;
  const std::int64_t end = std::min(p.rows, (share + 1) * blocking.share_rows);
  return {begin, std::clamp<std::int64_t>(end - begin, 0, blocking.panel_rows)};
}

void pack_panel(const MatrixProduct& p, const MatmulKernels& kernels, const Blocking& blocking, const Panel& panel,
                float* packed) {
  const std::int64_t rows_per_index = std::min<std::int64_t>(8, 64 / kernels.row_tile) * kernels.row_tile;
  const std::int64_t runs = ceil_div(blocking.panel_rows, rows_per_index);
  const std::int64_t depth_blocks = ceil_div(panel.depth, blocking.depth_block);
  parallel_for(blocking.shares * runs * depth_blocks, [&](std::int64_t index, int) {
    const std::int64_t share = index / (runs * depth_blocks);
    const Rows rows = rows_of(p, blocking, panel, share);
    const std::int64_t row = index / depth_blocks % runs * rows_per_index;
    if (row >= rows.count) return;
    const std::int64_t k = index % depth_blocks * blocking.depth_block;
    const std::int64_t depth = std::min(blocking.depth_block, panel.depth - k);
    kernels.pack_a(
        submatrix(p.a, rows.begin + row, panel.depth_begin + k), std::min(rows_per_index, rows.count - row), depth,
        packed + share * blocking.share_words + round_up(rows.count, kernels.row_tile) * blocking.words(kernels, k) +
            row * kernels.words(depth));
  });
}

/// `carries`: sums are carried from group to group, in the second half of each share's scratch.
void multiply_panel(const MatrixProduct& p, const MatmulKernels& kernels, const Blocking& blocking, const Panel& panel,
                    float* packed, bool carries, const Scratch& scratch) {
  const std::int64_t row_blocks = ceil_div(blocking.panel_rows, blocking.block_rows);
  const std::int64_t column_blocks = ceil_div(panel.columns, blocking.block_columns);
  const std::int64_t block_floats = blocking.block_rows * blocking.block_columns;
  const std::int64_t blocks = row_blocks * column_blocks;
  HEDDLE_CHECK(!carries || blocks * block_floats <= blocking.share_words / 2);
  parallel_for(blocking.shares * blocks, [&](std::int64_t index, int thread) {
    const std::int64_t share = index / blocks, in_share = index % blocks;
    const Rows rows = rows_of(p, blocking, panel, share);
    const std::int64_t row = in_share / column_blocks * blocking.block_rows;
    if (row >= rows.count) return;
    const std::int64_t column = in_share % column_blocks * blocking.block_columns;
    auto* own =
        reinterpret_cast<float*>(scratch.per_thread + static_cast<std::size_t>(thread) * scratch.bytes_per_thread);
    float* of_share = packed + share * blocking.share_words;
    const std::int64_t c_row = rows.begin + row, c_column = panel.column + column;
    MatmulBlock block;
    block.rows = std::min(blocking.block_rows, rows.count - row);
    block.columns = std::min(blocking.block_columns, panel.columns - column);
    block.coming_columns = std::min(blocking.block_columns, panel.columns - column - block.columns);
    block.depth = panel.depth;
    block.depth_block = blocking.depth_block;
    block.a = of_share;
    block.a_rows = round_up(rows.count, kernels.row_tile);
    block.a_first_strip = row / kernels.row_tile;
    block.b = submatrix(p.b, panel.depth_begin, c_column);
    block.packed_b = own;
    block.partial = carries ? of_share + blocking.share_words / 2 + in_share * block_floats
                            : own + blocking.block_columns * kernels.words(blocking.depth_block);
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
  const bool carries = blocking.group_depth < p.depth;
  Panel panel;
  for (panel.row = 0; panel.row < blocking.share_rows; panel.row += blocking.panel_rows) {
    for (panel.column = 0; panel.column < p.columns; panel.column += blocking.panel_columns) {
      panel.columns = std::min(blocking.panel_columns, p.columns - panel.column);
      for (panel.depth_begin = 0; panel.depth_begin < p.depth; panel.depth_begin += blocking.group_depth) {
        panel.depth = std::min(blocking.group_depth, p.depth - panel.depth_begin);
        pack_panel(p, kernels, blocking, panel, packed);
        multiply_panel(p, kernels, blocking, panel, packed, carries, scratch);
      }
    }
  }
}

}  // namespace heddle::cpu
