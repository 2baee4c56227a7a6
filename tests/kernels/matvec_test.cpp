#include "kernels/cpu/matvec.h"

#include <gtest/gtest.h>

#include <string_view>

#include "instruction_sets.h"
#include "product_operands.h"

namespace heddle {
namespace {

using cpu::MatrixProduct;
using test::random_tensor;
using test::ScratchMemory;
using test::Tensor;

/// Rows times the transpose of a weight [columns, depth].
MatrixProduct product_of(Tensor& a, Tensor& weight, Tensor& bias, Tensor& addend, Tensor& c) {
  MatrixProduct p;
  p.rows = c.shape[0];
  p.columns = c.shape[1];
  p.depth = a.shape[1];
  p.a = cpu::row_major(a.bytes.data(), a.dtype, p.depth);
  p.b = cpu::transposed(cpu::row_major(weight.bytes.data(), weight.dtype, p.depth));
  p.bias = bias.bytes.data();
  p.bias_dtype = bias.dtype;
  p.addend = addend.bytes.data();
  p.addend_row_stride = p.columns;
  p.c = c.bytes.data();
  p.c_dtype = c.dtype;
  p.c_row_stride = p.columns;
  return p;
}

/// What generation promises: a row alone has the bits that it has among others, which the packed product computes.
TEST(Matvec, ARowAloneHasTheBitsThatItHasAmongOthers) {
  const ScratchMemory scratch;
  struct Extents {
    std::int64_t columns, depth;
  };
  // One element; edges of strips, of 16 bytes, and of blocks of depth; a whole number of all; long rows.
  for (const Extents& extents : {Extents{1, 1}, {3, 7}, {33, 8}, {70, 321}, {64, 640}, {129, 1537}, {17, 8200}}) {
    const std::int64_t columns = extents.columns, depth = extents.depth;
    for (const DType type : {DType::f32, DType::bf16}) {
      Tensor a = random_tensor(type, {3, depth}, 1), weight = random_tensor(type, {columns, depth}, 2),
             bias = random_tensor(type, {columns}, 3), addend = random_tensor(DType::f32, {3, columns}, 4);
      const TensorView next = {weight.bytes.data(), type, {columns, depth}}, coming[] = {next, next};
      test::with_each_way_to_multiply([&](const char* name) {
        Tensor all(DType::f32, {3, columns}), alone(DType::f32, {3, columns});
        const MatrixProduct together = product_of(a, weight, bias, addend, all);
        cpu::matmul(together, scratch.get());
        for (std::int64_t row = 0; row < 3; ++row) {
          MatrixProduct p = product_of(a, weight, bias, addend, alone);
          p.rows = 1;
          p.a = cpu::submatrix(p.a, row, 0);
          p.addend = static_cast<const float*>(p.addend) + row * columns;
          p.c = static_cast<float*>(p.c) + row * columns;
          const bool done = cpu::multiply_row({&p, 1}, scratch.get(), coming);
          EXPECT_TRUE(done || std::string_view(name) == "SCALAR") << name;
          if (!done) cpu::matmul(p, scratch.get());
        }
        EXPECT_EQ(alone.bytes, all.bytes) << name << ' ' << columns << 'x' << depth << ' ' << dtype_bytes(type);
      });
    }
  }
}

TEST(Matvec, OtherFormsAreLeftToThePackedProduct) {
  const ScratchMemory scratch;
  Tensor a = random_tensor(DType::f32, {2, 16}, 1), weight = random_tensor(DType::f32, {8, 16}, 2),
         bias = random_tensor(DType::f32, {8}, 3), addend = random_tensor(DType::f32, {2, 8}, 4), c(DType::f32, {2, 8});
  const MatrixProduct two_rows = product_of(a, weight, bias, addend, c);
  EXPECT_FALSE(cpu::multiply_row({&two_rows, 1}, scratch.get()));
  MatrixProduct along_columns = two_rows;
  along_columns.rows = 1;
  along_columns.columns = along_columns.depth = 8;
  along_columns.b = cpu::row_major(weight.bytes.data(), DType::f32, 8);
  EXPECT_FALSE(cpu::multiply_row({&along_columns, 1}, scratch.get()));
  MatrixProduct half = two_rows;
  half.rows = 1;
  half.b.dtype = DType::f16;
  EXPECT_FALSE(cpu::multiply_row({&half, 1}, scratch.get()));
}

}  // namespace
}  // namespace heddle
