// Products of bf16, whose order of sums is a promise: the same bits with the processor's instruction and without.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "instruction_sets.h"
#include "kernels/cpu/matmul.h"
#include "product_operands.h"

namespace heddle {
namespace {

using cpu::MatrixProduct;
using test::random_tensor;
using test::ScratchMemory;
using test::Tensor;

struct Extents {
  std::int64_t rows, columns, depth;
};
constexpr Extents kExtents[] = {{1, 1, 1},     {1, 70, 321},  {2, 3, 5},     {8, 48, 8},    {13, 50, 19},
                                {31, 29, 641}, {97, 101, 63}, {25, 97, 326}, {16, 96, 1000}};

/// a or b as the product names its elements: (i, k) of a, (k, j) of b.
struct Factor {
  Factor(DType type, std::int64_t rows, std::int64_t columns, bool is_transposed, std::uint64_t seed)
      : tensor(random_tensor(type, is_transposed ? Shape{columns, rows} : Shape{rows, columns}, seed)),
        transposed(is_transposed) {}
  cpu::MatrixOperand operand() {
    const auto matrix = cpu::row_major(tensor.view());
    return transposed ? cpu::transposed(matrix) : matrix;
  }
  /// Its elements, rounded to bf16.
  std::vector<float> rounded() const {
    std::vector<float> result;
    for (const double value : tensor.values()) {
      result.push_back(static_cast<float>(BFloat16(static_cast<float>(value))));
    }
    return result;
  }
  std::size_t at(std::int64_t i, std::int64_t j) const {
    return static_cast<std::size_t>(transposed ? j * tensor.shape[1] + i : i * tensor.shape[1] + j);
  }

  Tensor tensor;
  bool transposed;
};

Tensor product_of(Factor& a, Factor& b, const Extents& e, const ScratchMemory& scratch) {
  Tensor c(DType::f32, {e.rows, e.columns});
  MatrixProduct product;
  product.rows = e.rows;
  product.columns = e.columns;
  product.depth = e.depth;
  product.a = a.operand();
  product.b = b.operand();
  product.compute_dtype = DType::bf16;
  product.c = c.bytes.data();
  product.c_row_stride = e.columns;
  cpu::matmul(product, scratch.get());
  return c;
}

/// Intel 64 and IA-32 Architectures Software Developer's Manual, VDPBF16PS: a sum takes the product of the upper halves
/// of a pair, then that of the lower ones; each product is exact and each sum rounded to nearest even.
Tensor by_the_manual(const Factor& a, const Factor& b, const Extents& e) {
  const auto a_values = a.rounded(), b_values = b.rounded();
  Tensor c(DType::f32, {e.rows, e.columns});
  const std::int64_t block = cpu::depth_block(e.depth);
  for (std::int64_t i = 0; i < e.rows; ++i) {
    for (std::int64_t j = 0; j < e.columns; ++j) {
      float total = 0.0f;
      for (std::int64_t begin = 0; begin < e.depth; begin += block) {
        const std::int64_t end = std::min(e.depth, begin + block);
        float sum = 0.0f;
        const auto add = [&](std::int64_t k) {
          if (k < end) sum = std::fma(a_values[a.at(i, k)], b_values[b.at(k, j)], sum);
        };
        for (std::int64_t k = begin; k < end; k += 2) {
          add(k + 1);
          add(k);
        }
        total = begin == 0 ? sum : total + sum;
      }
      c.view().as<float>()[i * e.columns + j] = total;
    }
  }
  return c;
}

/// Of each type and layout of a and b, on every instruction set.
void expect_bits_of_the_manual(DType a_type, DType b_type) {
  const ScratchMemory scratch;
  for (const Extents& e : kExtents) {
    for (const bool a_transposed : {false, true}) {
      for (const bool b_transposed : {false, true}) {
        Factor a(a_type, e.rows, e.depth, a_transposed, 1), b(b_type, e.depth, e.columns, b_transposed, 2);
        const Tensor expected = by_the_manual(a, b, e);
        test::with_each_way_to_multiply([&](const char* name) {
          EXPECT_EQ(product_of(a, b, e, scratch).bytes, expected.bytes)
              << name << ' ' << e.rows << 'x' << e.columns << 'x' << e.depth << ' ' << a_transposed << b_transposed;
        });
      }
    }
  }
}

TEST(MatmulOfBFloat16, AddsPairsAsTheManualSaysOnEveryInstructionSet) {
  expect_bits_of_the_manual(DType::bf16, DType::bf16);
}

TEST(MatmulOfBFloat16, RoundsOtherFactorsWhereThatIsAskedFor) {
  expect_bits_of_the_manual(DType::f32, DType::bf16);
  expect_bits_of_the_manual(DType::bf16, DType::f32);
  expect_bits_of_the_manual(DType::f16, DType::bf16);
}

TEST(MatmulOfBFloat16, KeepsAnFp32FactorWholeElsewhere) {
  // 1 + 2^-20 is no bf16: rounded, the difference of these two would be 0.
  const float a[] = {1.0f + 0x1p-20f, -1.0f};
  const BFloat16 b[] = {BFloat16(1.0f), BFloat16(1.0f)};
  float c = 0.0f;
  MatrixProduct product;
  product.rows = product.columns = 1;
  product.depth = 2;
  product.a = cpu::row_major(a, DType::f32, 2);
  product.b = cpu::row_major(b, DType::bf16, 1);
  product.c = &c;
  product.c_row_stride = 1;
  cpu::matmul(product, ScratchMemory().get());
  EXPECT_EQ(c, 0x1p-20f);
}

}  // namespace
}  // namespace heddle
