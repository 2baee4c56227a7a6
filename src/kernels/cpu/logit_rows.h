#pragma once

#include <cstdint>

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/replaced_rows.h"
#include "ops/kernel.h"

/// The end of a language model: logits of some tokens at a time, and what becomes of each row of them.
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

/// The row's loss; with_gradient: leaves the gradient with respect to the logits in place of them. Defined in
/// linear_cross_entropy.cpp.
double cross_entropy_of(const LogitRow& row);

/// The operands x, weight and labels of an operation, checked, and its workspace.
struct Head {
  Head(const KernelCall& call, const TensorView& workspace);

  const TensorView& x;
  TensorView branch_x;   ///< absent without an adapter's branch
  MatrixOperand weight;  ///< as [V, H]
  MatrixOperand branch_weight;
  MatrixOperand rows;           ///< [n, H], of an adapter's own
  TensorView magnitude, norms;  ///< [V], of DoRA: logits are multiplied by their quotient; absent without
  const std::int32_t* labels;
  float* logits;      ///< [chunk, V]
  float* row_logits;  ///< [chunk, n]
  float* unscaled;    ///< [chunk, V], of DoRA: logits before they are multiplied
  float* wide_dx;     ///< [chunk, H], of rows of its own where x is not f32; DoRA has none
  std::int64_t tokens, hidden, vocabulary, chunk;
  bool is_transposed;
  const Scratch& scratch;
  ReplacedRows replaced;
  LogitRow row;  ///< what is common to all rows

  /// Takes the operands of an adapter, where there are: its branch's from input `first` on, then its rows, DoRA's
  /// magnitudes and norms.
  void set_adapter(const KernelCall& call, std::size_t first);

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
};

/// Whether any of `count` tokens from `begin` on has a label. Throws Error for one outside the vocabulary.
bool any_supervised(const Head& head, std::int64_t begin, std::int64_t count);
/// Fills head.logits for these tokens.
void make_logits(const Head& head, std::int64_t begin, std::int64_t count);

/// The gradients of a head's operands, made of a chunk's d after another.
class HeadGradients {
 public:
  /// Those of an adapter's operands stand from output `first` on. Any may be absent.
  HeadGradients(const KernelCall& call, const TensorView& dx, const TensorView& dweight, std::size_t first);
  /// dx = d W and dW (+)= d^T x for these tokens, d being in head.logits, and the same for an adapter. Changes d.
  void write(const Head& head, std::int64_t begin, std::int64_t count);
  /// These tokens have no label.
  void skip(std::int64_t begin, std::int64_t count) const;
  /// Behind the last chunk.
  void finish() const;

 private:
  void write_dx(const Head& head, const MatrixOperand& d, std::int64_t begin, std::int64_t count) const;

  TensorView dx_, dweight_, branch_dx_, branch_dweight_, drows_, dmagnitude_;
  bool is_added_;
};

}  // namespace heddle::cpu
