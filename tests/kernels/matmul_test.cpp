#include "kernels/cpu/matmul.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/error.h"
#include "instruction_sets.h"
#include "product_operands.h"

namespace heddle {
namespace {

using cpu::MatrixOperand;
using cpu::MatrixProduct;
using test::random_tensor;
using test::ScratchMemory;
using test::Tensor;
using test::ThreadsScope;
using test::whole_tensor;

struct Extents {
  std::int64_t rows, columns, depth;
};

/// How an operand lies in memory.
enum class Layout { rows, columns };

using Maker = Tensor (*)(DType, Shape, std::uint64_t);

/// A product with all that it reads and writes, and its value by three plain loops in double.
struct Case {
  Case(Extents e, Maker make, DType a_type, Layout a_layout, DType b_type, Layout b_layout, DType c_type,
       bool with_bias = false, bool with_addend = false)
      : extents(e) {
    a = make(a_type, a_layout == Layout::rows ? Shape{e.rows, e.depth} : Shape{e.depth, e.rows}, 1);
    b = make(b_type, b_layout == Layout::rows ? Shape{e.depth, e.columns} : Shape{e.columns, e.depth}, 2);
    bias = make(a_type, Shape{e.columns}, 3);
    addend = make(c_type, Shape{e.rows, e.columns}, 4);
    c = Tensor(c_type, Shape{e.rows, e.columns});
    std::memset(c.bytes.data(), 0xff, c.bytes.size());
    operands.rows = e.rows;
    operands.columns = e.columns;
    operands.depth = e.depth;
    operands.a = cpu::row_major(a.bytes.data(), a_type, a.shape.back());
    if (a_layout == Layout::columns) operands.a = cpu::transposed(operands.a);
    operands.b = cpu::row_major(b.bytes.data(), b_type, b.shape.back());
    if (b_layout == Layout::columns) operands.b = cpu::transposed(operands.b);
    operands.c = c.bytes.data();
    operands.c_dtype = c_type;
    operands.c_row_stride = e.columns;
    if (with_bias) {
      operands.bias = bias.bytes.data();
      operands.bias_dtype = a_type;
    }
    if (with_addend) {
      operands.addend = addend.bytes.data();
      operands.addend_row_stride = e.columns;
    }
    const auto a_values = a.values(), b_values = b.values(), bias_values = bias.values(),
               addend_values = addend.values();
    expected.resize(static_cast<std::size_t>(e.rows * e.columns));
    magnitude.resize(expected.size());
    for (std::int64_t i = 0; i < e.rows; ++i) {
      for (std::int64_t j = 0; j < e.columns; ++j) {
        double sum = 0.0, absolute = 0.0;
        const auto add = [&](double term) {
          sum += term;
          absolute += std::abs(term);
        };
        for (std::int64_t k = 0; k < e.depth; ++k) {
          const auto ai = static_cast<std::size_t>(a_layout == Layout::rows ? i * e.depth + k : k * e.rows + i);
          const auto bi = static_cast<std::size_t>(b_layout == Layout::rows ? k * e.columns + j : j * e.depth + k);
          add(a_values[ai] * b_values[bi]);
        }
        const auto at = static_cast<std::size_t>(i * e.columns + j);
        if (with_bias) add(bias_values[static_cast<std::size_t>(j)]);
        if (with_addend) add(addend_values[at]);
        expected[at] = sum;
        magnitude[at] = absolute;
      }
    }
  }

  void run(const ScratchMemory& scratch = ScratchMemory()) { cpu::matmul(operands, scratch.get()); }

  void expect_exact() const {
    Tensor rounded(c.dtype, c.shape);
    rounded.set(expected);
    ASSERT_EQ(c.values(), rounded.values());
  }

  /// Bound of a sum of n products in blocks: Higham, Accuracy and Stability of Numerical Algorithms, section 4.2.
  void expect_within_bound() const {
    const std::int64_t block = cpu::depth_block(extents.depth);
    const double roundings = static_cast<double>(block + (extents.depth + block - 1) / block + 2);
    const auto values = c.values();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double bound = roundings * 0x1p-24 * magnitude[i];
      ASSERT_NEAR(values[i], expected[i], bound + test::rounding_error(c.dtype, std::abs(expected[i]) + bound))
          << "element " << i;
    }
  }

  Extents extents;
  Tensor a, b, bias, addend, c;
  MatrixProduct operands;
  std::vector<double> expected, magnitude;
};

constexpr Extents kOddExtents[] = {{1, 1, 1},    {1, 1, 7},     {2, 3, 5},      {13, 17, 19},   {12, 32, 8},
                                   {1, 129, 64}, {3, 257, 331}, {31, 29, 641},  {97, 101, 103}, {241, 97, 323},
                                   {5, 6, 1999}, {64, 48, 320}, {127, 193, 321}};
constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
constexpr Layout kLayouts[] = {Layout::rows, Layout::columns};

TEST(Matmul, WholeNumbersAreExactInAllTypesAndLayouts) {
  for (const Extents& extents : kOddExtents) {
    for (const DType a : kTypes) {
      for (const DType b : kTypes) {
        for (const Layout a_layout : kLayouts) {
          for (const Layout b_layout : kLayouts) {
            Case product(extents, whole_tensor, a, a_layout, b, b_layout, a);
            product.run();
            product.expect_exact();
          }
        }
      }
    }
  }
}

TEST(Matmul, RealNumbersStayWithinTheRoundingOfTheirSums) {
  for (const Extents& extents : kOddExtents) {
    for (const DType type : kTypes) {
      for (const DType c : kTypes) {
        Case product(extents, random_tensor, type, Layout::rows, type, Layout::columns, c, true, true);
        product.run();
        product.expect_within_bound();
      }
    }
  }
}

TEST(Matmul, BiasAndAddendAreAddedBeforeTheOneRounding) {
  for (const Extents& extents : {Extents{7, 45, 700}, Extents{50, 64, 33}}) {
    for (const DType type : kTypes) {
      for (const bool with_bias : {false, true}) {
        for (const bool with_addend : {false, true}) {
          Case product(extents, whole_tensor, type, Layout::rows, type, Layout::columns, type, with_bias, with_addend);
          product.run();
          product.expect_exact();
        }
      }
    }
  }
}

TEST(Matmul, AddendMayBeCItself) {
  for (const DType type : kTypes) {
    Case product({37, 41, 1000}, whole_tensor, type, Layout::rows, type, Layout::columns, type, true, true);
    product.c = product.addend;
    product.operands.c = product.c.bytes.data();
    product.operands.addend = product.operands.c;
    product.run();
    product.expect_exact();
  }
}

TEST(Matmul, SubmatricesAreReadAndWrittenWhereTheyLie) {
  constexpr std::int64_t kWidth = 90;
  Tensor a = whole_tensor(DType::f32, {40, kWidth}, 1), b = whole_tensor(DType::bf16, {kWidth, kWidth}, 2);
  Tensor c = whole_tensor(DType::f32, {40, kWidth}, 3);
  const auto before = c.values(), a_values = a.values(), b_values = b.values();
  MatrixProduct product;
  product.rows = 17;
  product.columns = 33;
  product.depth = 21;
  product.a = {a.view().as<float>() + 3 * kWidth + 5, DType::f32, kWidth, 2};  // every second column
  product.b = {b.view().as<BFloat16>() + 7 * kWidth + 1, DType::bf16, kWidth, 1};
  product.c = c.view().as<float>() + 9 * kWidth + 11;
  product.c_row_stride = kWidth;
  cpu::matmul(product, ScratchMemory().get());
  const auto after = c.values();
  for (std::int64_t i = 0; i < 40; ++i) {
    for (std::int64_t j = 0; j < kWidth; ++j) {
      double expected = before[static_cast<std::size_t>(i * kWidth + j)];
      const std::int64_t row = i - 9, column = j - 11;
      if (row >= 0 && row < 17 && column >= 0 && column < 33) {
        expected = 0.0;
        for (std::int64_t k = 0; k < 21; ++k) {
          expected += a_values[static_cast<std::size_t>((3 + row) * kWidth + 5 + 2 * k)] *
                      b_values[static_cast<std::size_t>((7 + k) * kWidth + 1 + column)];
        }
      }
      ASSERT_EQ(after[static_cast<std::size_t>(i * kWidth + j)], expected) << i << ", " << j;
    }
  }
}

TEST(Matmul, EveryInstructionSetAgrees) {
  test::with_each_way_to_multiply([](const char* name) {
    SCOPED_TRACE(name);
    for (const Extents& extents : {Extents{1, 1, 1}, Extents{29, 131, 345}, Extents{64, 96, 40}}) {
      for (const DType type : kTypes) {
        for (const Layout layout : kLayouts) {
          Case product(extents, whole_tensor, type, layout, type, layout, type, true, true);
          product.run();
          product.expect_exact();
        }
      }
    }
  });
}

TEST(Matmul, NarrowResultsAreRoundedOnceHoweverTheProductIsCut) {
  // Sums of whole numbers far beyond the 8 bits of bf16: a partial sum that was rounded would show. With 1 MiB of
  // shared scratch these are cut along the depth; depth and columns; depth and rows; rows.
  for (const Extents& extents :
       {Extents{130, 53, 6000}, Extents{380, 250, 700}, Extents{390, 20, 1400}, Extents{500, 20, 600}}) {
    for (const DType type : kTypes) {
      Case product(extents, whole_tensor, DType::bf16, Layout::rows, DType::bf16, Layout::rows, type, true, true);
      for (const std::size_t shared : {std::size_t{1} << 20, kSharedScratchBytes}) {
        product.run(ScratchMemory(shared));
        product.expect_exact();
      }
    }
  }
}

TEST(Matmul, BitsDependNeitherOnThreadsNorOnScratch) {
  for (const Extents& extents : {Extents{250, 113, 3000}, Extents{1, 300, 500}, Extents{33, 65, 129}}) {
    for (const DType type : {DType::f32, DType::bf16}) {
      for (const DType c : {DType::f32, DType::bf16}) {
        std::vector<std::byte> first;
        for (const int threads : {1, 2, 3, 4}) {
          const ThreadsScope scope(threads);
          for (const std::size_t shared : {std::size_t{1} << 20, kSharedScratchBytes}) {
            Case product(extents, random_tensor, type, Layout::rows, type, Layout::columns, c, true, true);
            product.run(ScratchMemory(shared));
            if (first.empty()) first = product.c.bytes;
            ASSERT_EQ(product.c.bytes, first) << threads << " threads";
          }
        }
      }
    }
  }
}

TEST(Matmul, BitsOfARowDependOnNoOtherRow) {
  constexpr std::int64_t kRows = 61, kColumns = 75, kDepth = 701;
  for (const DType type : {DType::f32, DType::bf16}) {
    Case whole({kRows, kColumns, kDepth}, random_tensor, type, Layout::rows, type, Layout::columns, DType::f32);
    whole.run();
    for (const auto& [begin, count] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {17, 1}, {5, 8}, {40, 21}}) {
      Tensor part(DType::f32, {count, kColumns});
      MatrixProduct product = whole.operands;
      product.rows = count;
      product.a = cpu::submatrix(product.a, begin, 0);
      product.c = part.bytes.data();
      cpu::matmul(product, ScratchMemory().get());
      ASSERT_EQ(std::memcmp(part.bytes.data(), whole.c.bytes.data() + begin * kColumns * 4, part.bytes.size()), 0)
          << begin << ", " << count;
    }
  }
}

TEST(Matmul, NoRowsIsNoWork) {
  MatrixProduct product;
  product.columns = 5;
  product.depth = 5;
  cpu::matmul(product, ScratchMemory().get());
}

TEST(Matmul, ScratchThatIsTooSmallIsRefused) {
  Case product({300, 64, 3000}, random_tensor, DType::f32, Layout::rows, DType::f32, Layout::rows, DType::bf16);
  EXPECT_THROW(product.run(ScratchMemory(4096)), Error);
  EXPECT_THROW(product.run(ScratchMemory(kSharedScratchBytes, 4096)), Error);
}

TEST(Matmul, NotANumberAndInfinityPassThrough) {
  for (const DType type : kTypes) {
    Case product({3, 40, 20}, random_tensor, type, Layout::rows, type, Layout::rows, DType::bf16);
    auto a = product.a.values();
    a[20] = std::nan("");  // row 1
    a[40] = HUGE_VAL;      // row 2
    product.a.set(a);
    product.run();
    const auto c = product.c.values();
    for (std::size_t j = 0; j < 40; ++j) {
      EXPECT_TRUE(std::isfinite(c[j]));
      EXPECT_TRUE(std::isnan(c[40 + j]));
      EXPECT_TRUE(std::isinf(c[80 + j]));
    }
  }
}

}  // namespace
}  // namespace heddle
