#pragma once

#include <cstdint>

#include "kernels/cpu/matmul.h"

/// The inner loops of the matrix product, compiled for each instruction set. Packed operands are words in
/// strips: a strip of A holds `row_tile` rows, a strip of B `column_tile` columns, both with the depth outermost:
/// strip[word * tile + i]. A word is an f32 of one depth, or two bf16 of two, or, of 64 bits, four of four, the first
/// lowest. Strips at the edge and words at the end are filled up with zeros. Their sizes are in words of 32 bits.
/// matmul_bf16_amx-inl.h has strips of another form, of the same sizes.
namespace heddle::cpu {

/// A run of rows of C times a run of columns, over one group of depth; what one index of parallel_for computes.
struct MatmulBlock {
  std::int64_t rows, columns;
  std::int64_t depth, depth_block;  ///< the group is cut into depth blocks; the last may be shorter
  const float* a;                   ///< packed A of the group: [depth blocks][strips][words of the block][row_tile]
  std::int64_t a_rows;              ///< strips * row_tile
  std::int64_t a_first_strip;       ///< the block's first row begins this strip
  std::int64_t coming_columns;      ///< behind these, which the same thread computes next; 0: none
  MatrixOperand b;                  ///< from the group's first depth and the block's first column on
  float* packed_b;                  ///< [strips of B][words of depth_block][column_tile], of this thread
  float* partial;                   ///< f32 sums [strips of B][strips of A][row_tile][column_tile]
  bool first, last;  ///< group of depth: `partial` is overwritten by the first, and goes to C after the last
  bool starts_at_c;  ///< `partial` begins with what C holds
  void* c;
  DType c_dtype;
  std::int64_t c_row_stride;
  const void* addend;  ///< or null
  std::int64_t addend_row_stride;
  const void* bias;  ///< or null
  DType bias_dtype;
};

struct MatmulKernels {
  std::int64_t row_tile, column_tile;
  std::int64_t depth_step, words_per_step;  ///< depths that a word holds, and its size
  /// Packs the first rows and columns of A: [strips][words][row_tile].
  void (*pack_a)(const MatrixOperand& a, std::int64_t rows, std::int64_t depth, float* packed);
  void (*multiply)(const MatmulBlock& block);

  /// Of a strip that begins a depth block.
  std::int64_t words(std::int64_t depth) const { return (depth + depth_step - 1) / depth_step * words_per_step; }
};

/// Those of the best instruction set that this machine has, for factors of f32 or of bf16.
const MatmulKernels& matmul_kernels(DType compute_dtype);

}  // namespace heddle::cpu
