#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/dtype.h"
#include "ops/kernel.h"
#include "ops/token_sums.h"

/// The matrix product of the CPU backend, for the kernels that are made of products.
namespace heddle::cpu {

/// A matrix where it lies: element (i, j) is at data + i * row_stride + j * column_stride, in elements of f32, bf16 or
/// f16. Any strides are right, 0 too; packing is fast where one of them is 1.
/// B may be quantized, with one of its strides 1: then `data` is the first byte of a tensor of `elements` elements, and
/// element (0, 0) is its element `first`. It is decoded as it is packed; the product has the bits that it has with the
/// same values in f32.
struct MatrixOperand {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;
  std::int64_t first = 0;
  std::int64_t elements = 0;
};

/// `data` as a row-major matrix whose rows are `width` elements apart.
inline MatrixOperand row_major(const void* data, DType dtype, std::int64_t width) { return {data, dtype, width, 1}; }
/// All of a tensor, of any type: its last extent is a row.
inline MatrixOperand row_major(const TensorView& tensor) {
  return {tensor.data, tensor.dtype, tensor.shape.back(), 1, 0, tensor.elements()};
}
inline MatrixOperand transposed(MatrixOperand matrix) {
  std::swap(matrix.row_stride, matrix.column_stride);
  return matrix;
}
/// What begins at element (row, column).
inline MatrixOperand submatrix(MatrixOperand matrix, std::int64_t row, std::int64_t column) {
  const std::int64_t skipped = row * matrix.row_stride + column * matrix.column_stride;
  if (is_quantized(matrix.dtype)) {
    matrix.first += skipped;
  } else {
    const auto bytes = static_cast<std::int64_t>(dtype_bytes(matrix.dtype));
    matrix.data = static_cast<const std::byte*>(matrix.data) + skipped * bytes;
  }
  return matrix;
}

/// C[rows, columns] = A[rows, depth] * B[depth, columns] + bias[columns] + addend[rows, columns]
struct MatrixProduct {
  std::int64_t rows = 0, columns = 0, depth = 0;
  MatrixOperand a, b;
  /// Of the factors, f32 or bf16; sums are f32. With bf16, elements of other types are rounded to it as they are
  /// packed. Where both operands are bf16 the factors are too.
  DType compute_dtype = DType::f32;
  void* c = nullptr;  ///< rows of adjacent elements; shares no memory with a and b
  DType c_dtype = DType::f32;
  std::int64_t c_row_stride = 0;
  const void* bias = nullptr;  ///< [columns] or null
  DType bias_dtype = DType::f32;
  const void* addend =
      nullptr;  ///< of C's type, rows of adjacent elements, or null; it may be C itself: then C += A * B
  std::int64_t addend_row_stride = 0;
  bool starts_at_c = false;      ///< C in f32: sums begin at what it holds, in place of zero
  std::int64_t depth_block = 0;  ///< in place of depth_block(depth); at most kMaxDepthBlock
};

/// C [rows, columns] = A B, without gaps between the rows of C.
inline MatrixProduct dense_product(std::int64_t rows, std::int64_t columns, std::int64_t depth, const MatrixOperand& a,
                                   const MatrixOperand& b, void* c, DType c_dtype = DType::f32) {
  MatrixProduct product;
  product.rows = rows;
  product.columns = columns;
  product.depth = depth;
  product.a = a;
  product.b = b;
  product.c = c;
  product.c_dtype = c_dtype;
  product.c_row_stride = columns;
  return product;
}

/// Computes a product with all threads. Sums are f32 and rounded to C's type once, at the end. The bits of an element
/// depend on its row of A, its column of B and its addends alone: not on threads, nor on where it stands in C, nor on
/// how many rows and columns are computed with it. So a generated token sees the logits that training sees, and a
/// product may be cut into chunks of rows or columns freely. `depth` is added up in blocks of depth_block(depth) terms.
/// Within a block the terms of f32 come in order; those of bf16 in pairs, as bf16_pair_sum() says (bf16_dot.h), or 32
/// at once, as amx_tiles() says (amx.h): the same bits on every machine but those with Arm's instructions for bf16 or
/// with AMX, and but for numbers below 2^-126. Allocates nothing; needs 1 MiB of shared scratch and 1 MiB for each
/// thread, and uses more where it is there.
void matmul(const MatrixProduct& product, const Scratch& scratch);

/// Terms of a sum that are added one after another from zero; then the blocks' sums are added in order.
std::int64_t depth_block(std::int64_t depth);
inline constexpr std::int64_t kMaxDepthBlock = 640;

}  // namespace heddle::cpu
