// y = x W^T + bias + residual, x [T,I], W [O,I] (transposed: x W with W [I,O]), y [T,O]. A group is several of them of
// one x, without residuals: of one row in one pass over all weights.
// Backward: dx = dy W + addend overwrites dx; dW = dy^T x (transposed: x^T dy) and dbias = column sums of dy overwrite
// or add, as the call says. T*I*O multiply-adds each. W may be quantized in y and dx; with x and dy in bf16 it is
// rounded to that, as bitsandbytes and transformers decode it.
#include <algorithm>
#include <array>
#include <span>

#include "base/error.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/matvec.h"

namespace heddle::cpu {
namespace {

/// The weight as [outputs, inputs].
MatrixOperand weight_of(const TensorView& weight, bool is_transposed) {
  return is_transposed ? transposed(row_major(weight)) : row_major(weight);
}

/// A product whose C is the whole of `c`; `c`'s leading extents are its rows.
MatrixProduct product_into(const TensorView& c, std::int64_t depth, const MatrixOperand& a, const MatrixOperand& b) {
  MatrixProduct product = dense_product(c.shape.rows(), c.shape.back(), depth, a, b, c.data, c.dtype);
  if (a.dtype == DType::bf16) product.compute_dtype = DType::bf16;
  return product;
}

MatrixProduct forward_product(const TensorView& x, const TensorView& weight, const TensorView& bias,
                              const TensorView& y, bool is_transposed) {
  MatrixProduct product = product_into(y, x.shape.back(), row_major(x), transposed(weight_of(weight, is_transposed)));
  product.bias = bias.data;
  product.bias_dtype = bias.dtype;
  return product;
}

void set_addend(MatrixProduct& product, const TensorView& addend) {
  if (!addend.present()) return;
  HEDDLE_CHECK(addend.dtype == product.c_dtype);
  product.addend = addend.data;
  product.addend_row_stride = product.columns;
}

}  // namespace

void linear(const KernelCall& call) {
  const bool is_transposed = call.attributes.integer("transposed") != 0;
  MatrixProduct product = forward_product(call.in[0], call.in[1], call.in[2], call.out[0], is_transposed);
  set_addend(product, call.in[3]);
  if (multiply_row({&product, 1}, call.scratch, call.coming)) return;
  matmul(product, call.scratch);
}

void linear_group(const KernelCall& call) {
  constexpr std::size_t kMostTogether = 4;
  for (std::size_t first = 0; first < call.out.size(); first += kMostTogether) {
    const std::size_t count = std::min(kMostTogether, call.out.size() - first);
    std::array<MatrixProduct, kMostTogether> list;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t weight = 1 + 2 * (first + i);
      list[i] = forward_product(call.in[0], call.in[weight], call.in[weight + 1], call.out[first + i], false);
    }
    const std::span products = std::span(list).first(count);
    if (multiply_row(products, call.scratch, call.coming)) continue;
    for (const MatrixProduct& product : products) matmul(product, call.scratch);
  }
}

void linear_backward_input(const KernelCall& call) {
  const TensorView &dy = call.in[0], &weight = call.in[1], &addend = call.in[2];
  const bool is_transposed = call.attributes.integer("transposed") != 0;
  MatrixProduct product = product_into(call.out[0], dy.shape.back(), row_major(dy), weight_of(weight, is_transposed));
  set_addend(product, addend);
  matmul(product, call.scratch);
}

void linear_backward_weight(const KernelCall& call) {
  const TensorView &dy = call.in[0], &x = call.in[1];
  const TensorView &dweight = call.out[0], &dbias = call.out[1];
  const bool is_transposed = call.attributes.integer("transposed") != 0;
  const std::int64_t tokens = dy.shape.rows();
  const auto sum_over_tokens = [&](MatrixProduct product) {
    product.depth_block = kTokenSumBlock;
    product.starts_at_c = adds(call);
    matmul(product, call.scratch);
  };
  const auto &left = is_transposed ? x : dy, &right = is_transposed ? dy : x;
  if (dweight.present()) {
    sum_over_tokens(product_into(dweight, tokens, transposed(row_major(left)), row_major(right)));
  }
  if (dbias.present()) {
    // Column sums are a product with a row of ones.
    const float one = 1.0f;
    sum_over_tokens(product_into(dbias, tokens, MatrixOperand{&one, DType::f32, 0, 0}, row_major(dy)));
  }
}

}  // namespace heddle::cpu
