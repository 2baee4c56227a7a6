#pragma once

#include <cstdint>

#include "kernels/cpu/matmul.h"
#include "ops/kernel.h"

/// The end of a language model: logits of some tokens at a time, and what becomes of each row of them. Defined in
/// linear_cross_entropy.cpp.
namespace heddle::cpu {

inline constexpr std::int32_t kIgnoredLabel = -100;

/// One row of logits, and what turns it into a loss and a gradient.
struct LogitRow {
  float* values;
  std::int64_t vocabulary;
  std::int64_t label;
  float scale, cap;  ///< cap 0: none
  bool with_gradient;
  float gradient_scale;
  double smoothing, z_loss;
};

/// The row's loss; with_gradient: leaves the gradient with respect to the logits in place of them.
double cross_entropy_of(const LogitRow& row);

/// The operands x, weight and labels of an operation, checked, and its workspace.
struct Head {
  Head(const KernelCall& call, const TensorView& workspace);

  const TensorView& x;
  TensorView branch_x;   ///< absent without an adapter
  MatrixOperand weight;  ///< as [V, H]
  MatrixOperand branch_weight;
  const std::int32_t* labels;
  float* logits;
  std::int64_t tokens, hidden, vocabulary, chunk;
  bool is_transposed;
  const Scratch& scratch;
  LogitRow row;  ///< what is common to all rows

  /// The operands of an adapter, whose product make_logits() adds.
  void set_branch(const TensorView& branch, const TensorView& factor);

  MatrixOperand x_rows(std::int64_t begin) const { return rows_of(x, begin); }
  static MatrixOperand rows_of(const TensorView& matrix, std::int64_t begin) {
    const std::int64_t columns = matrix.shape.back();
    const auto bytes = begin * columns * static_cast<std::int64_t>(dtype_bytes(matrix.dtype));
    return row_major(matrix.as<std::byte>() + bytes, matrix.dtype, columns);
  }
  MatrixProduct product() const {
    MatrixProduct product;
    if (x.dtype == DType::bf16) product.compute_dtype = DType::bf16;
    return product;
  }
  MatrixOperand logit_rows() const { return row_major(logits, DType::f32, vocabulary); }
};

/// Whether any of `count` tokens from `begin` on has a label. Throws Error for one outside the vocabulary.
bool any_supervised(const Head& head, std::int64_t begin, std::int64_t count);
/// Fills head.logits for these tokens.
void make_logits(const Head& head, std::int64_t begin, std::int64_t count);
/// dx = d W for these tokens, d being in head.logits. `weight` is the head's or its branch's.
void write_input_gradient(const Head& head, const MatrixOperand& weight, const TensorView& dx, std::int64_t begin,
                          std::int64_t count);
/// dW (+)= d^T x over these tokens; transposed: x^T d. `x` is the head's or its branch's.
void add_weight_gradient(const Head& head, const TensorView& x, bool is_transposed, const TensorView& dweight,
                         std::int64_t begin, std::int64_t count, bool add);
/// Zeros in the rows of dx of these tokens, which have no label; nothing where dx is absent.
void clear_input_gradient(const TensorView& dx, std::int64_t begin, std::int64_t count);
/// Zeros; nothing where dW is absent.
void clear_weight_gradient(const TensorView& dweight);

}  // namespace heddle::cpu
