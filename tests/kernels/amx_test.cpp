// Products by AMX: of the processor where it has it, and emulated where it can pack operands for it. Its order of sums
// is held to the manual in matmul_bf16_test.cpp, a row alone to others in matvec_test.cpp.
#include "kernels/cpu/amx.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "instruction_sets.h"
#include "kernels/cpu/matmul.h"
#include "product_operands.h"

namespace heddle {
namespace {

using cpu::MatrixProduct;
using test::random_tensor;
using test::ScratchMemory;
using test::Tensor;

/// Fails nothing and says so where no kind of tiles is there.
void with_amx(const std::function<void(const char*)>& body) {
  int kinds = 0;
  test::with_each_kind_of_amx_tiles([&](const char* name) {
    ++kinds;
    SCOPED_TRACE(name);
    body(name);
  });
  if (kinds == 0) GTEST_SKIP() << "this processor has no instructions that pack operands for AMX";
}

/// C = A B, in f32, of elements of bf16.
std::vector<float> product_of(Tensor a, Tensor b, const ScratchMemory& scratch = ScratchMemory()) {
  std::vector<float> c(static_cast<std::size_t>(a.shape[0] * b.shape[1]));
  cpu::matmul(cpu::dense_product(a.shape[0], b.shape[1], b.shape[0], cpu::row_major(a.view()), cpu::row_major(b.view()),
                                 c.data()),
              scratch.get());
  return c;
}
/// Of one row and one column.
float inner_product(const std::vector<float>& a, const std::vector<float>& b) {
  const auto depth = static_cast<std::int64_t>(a.size());
  Tensor row(DType::bf16, {1, depth}), column(DType::bf16, {depth, 1});
  for (std::size_t k = 0; k < a.size(); ++k) {
    row.view().as<BFloat16>()[k] = BFloat16(a[k]);
    column.view().as<BFloat16>()[k] = BFloat16(b[k]);
  }
  const float packed = product_of(row, column)[0];
  // As a column of a weight: not packed.
  float alone = 0.0f;
  MatrixProduct product =
      cpu::dense_product(1, 1, depth, cpu::row_major(row.view()),
                         cpu::transposed(cpu::row_major(column.bytes.data(), DType::bf16, depth)), &alone);
  cpu::matmul(product, ScratchMemory().get());
  EXPECT_EQ(std::bit_cast<std::uint32_t>(packed), std::bit_cast<std::uint32_t>(alone));
  return packed;
}

// Sums by hand, after TDPBF16PS in Intel's manual.
TEST(Amx, AddsTermsOfEvenAndOfOddIndexApart) {
  with_amx([](const char*) {
    // One after another, 2^-24 would be lost to 1 twice; of odd index both, they make 2^-23 first.
    EXPECT_EQ(inner_product({1.0f, 0x1p-24f, 0.0f, 0x1p-24f}, {1, 1, 1, 1}), 1.0f + 0x1p-23f);
    EXPECT_EQ(inner_product({1.0f, 0.0f, 0x1p-24f, 0.0f, 0x1p-24f}, {1, 1, 1, 1, 1}), 1.0f);
    // The next 32 terms are added up from zero.
    std::vector<float> a(36, 0.0f);
    a[0] = 1.0f;
    a[32] = a[34] = 0x1p-24f;
    EXPECT_EQ(inner_product(a, std::vector<float>(36, 1.0f)), 1.0f + 0x1p-23f);
    // A fused multiply-add: (1 + 2^-7)^2 = 1 + 2^-6 + 2^-14, of which 1 + 2^-6 goes.
    EXPECT_EQ(inner_product({-1.0f - 0x1p-6f, 0.0f, 1.0f + 0x1p-7f}, {1.0f, 1.0f, 1.0f + 0x1p-7f}), 0x1p-14f);
  });
}

TEST(Amx, TakesNumbersBelowTheLeastNormalOneAsZero) {
  with_amx([](const char*) {
    EXPECT_EQ(inner_product({0x1p-127f}, {0x1p100f}), 0.0f);                     // a factor
    EXPECT_EQ(inner_product({0x1p-63f}, {0x1p-64f}), 0.0f);                      // a product
    EXPECT_EQ(inner_product({0x1p-63f}, {0x1p-63f}), 0x1p-126f);                 // which this one is not
    EXPECT_EQ(inner_product({0x1.8p-126f, 0.0f, -0x1p-126f}, {1, 1, 1}), 0.0f);  // a sum, of one half
    EXPECT_EQ(inner_product({0x1.8p-126f, -0x1p-126f}, {1, 1}), 0.0f);           // of both
    // Less than 2^-126 when it is rounded to 24 bits, though not to those that f32 has there; and not less.
    EXPECT_EQ(inner_product({0x1p-63f, 0.0f, -0x1.8p-76f}, {0x1p-63f, 0.0f, 0x1p-75f}), 0.0f);
    EXPECT_EQ(inner_product({0x1p-63f, 0.0f, -0x1p-76f}, {0x1p-63f, 0.0f, 0x1p-76f}), 0x1p-126f);
  });
}

TEST(Amx, NotANumberAndInfinityReachTheirRowsAlone) {
  with_amx([](const char*) {
    Tensor a = random_tensor(DType::bf16, {40, 50}, 1), b = random_tensor(DType::bf16, {50, 35}, 2);
    auto values = a.values();
    values[7 * 50 + 49] = std::nan("");
    values[39 * 50 + 3] = HUGE_VAL;
    a.set(values);
    const auto c = product_of(a, b);
    for (std::size_t i = 0; i < 40; ++i) {
      for (std::size_t j = 0; j < 35; ++j) {
        EXPECT_EQ(std::isnan(c[i * 35 + j]), i == 7);
        EXPECT_EQ(std::isinf(c[i * 35 + j]), i == 39);
      }
    }
  });
}

// Of one row, columns are read where they lie; the first terms of the next column follow the last of each.
TEST(Amx, NotANumberReachesItsColumnAlone) {
  with_amx([](const char*) {
    Tensor a = random_tensor(DType::bf16, {1, 50}, 1), weight = random_tensor(DType::bf16, {35, 50}, 2);
    auto values = weight.values();
    for (std::size_t k = 0; k < 50; ++k) values[7 * 50 + k] = std::nan("");
    weight.set(values);
    std::vector<float> c(35);
    cpu::matmul(cpu::dense_product(1, 35, 50, cpu::row_major(a.view()), cpu::transposed(cpu::row_major(weight.view())),
                                   c.data()),
                ScratchMemory().get());
    for (std::size_t j = 0; j < 35; ++j) EXPECT_EQ(std::isnan(c[j]), j == 7) << j;
  });
}

TEST(Amx, BitsDependNeitherOnThreadsNorOnScratchNorOnTheOtherRowsAndColumns) {
  with_amx([](const char*) {
    // Beyond 1 MiB of scratch, the depth is cut into groups of blocks; 3000 terms are blocks of 304, of nine steps and
    // a half.
    const Tensor a = random_tensor(DType::bf16, {430, 3000}, 1), b = random_tensor(DType::bf16, {3000, 70}, 2);
    const auto whole = product_of(a, b);
    for (const int count : {1, 3}) {
      const test::ThreadsScope scope(count);
      EXPECT_EQ(product_of(a, b, ScratchMemory(std::size_t{1} << 20)), whole);
      for (const auto& [row, rows] : {std::pair<std::int64_t, std::int64_t>{0, 1}, {3, 2}, {5, 17}, {31, 33}}) {
        for (const auto& [column, columns] :
             {std::pair<std::int64_t, std::int64_t>{0, 70}, {69, 1}, {3, 16}, {9, 20}}) {
          Tensor a_part = a, b_part = b;
          std::vector<float> c(static_cast<std::size_t>(rows * columns));
          cpu::matmul(cpu::dense_product(rows, columns, 3000, cpu::submatrix(cpu::row_major(a_part.view()), row, 0),
                                         cpu::submatrix(cpu::row_major(b_part.view()), 0, column), c.data()),
                      ScratchMemory().get());
          for (std::int64_t i = 0; i < rows; ++i) {
            EXPECT_EQ(std::memcmp(c.data() + i * columns, whole.data() + (row + i) * 70 + column,
                                  static_cast<std::size_t>(columns) * sizeof(float)),
                      0)
                << row + i << ", " << column;
          }
        }
      }
    }
  });
}

TEST(Amx, ADepthThatIsCutAtBlocksGivesTheSameBits) {
  with_amx([](const char*) {
    constexpr std::int64_t kRows = 53, kColumns = 35, kDepth = 2 * cpu::kMaxDepthBlock + 50;
    // As gradients of weights are added up: both factors with a stride along the depth.
    Tensor a = random_tensor(DType::bf16, {kDepth, kRows}, 1), b = random_tensor(DType::bf16, {kDepth, kColumns}, 2);
    Tensor whole = random_tensor(DType::f32, {kRows, kColumns}, 3), cut = whole;
    const auto add = [&](std::int64_t begin, std::int64_t end, Tensor& c) {
      MatrixProduct product =
          cpu::dense_product(kRows, kColumns, end - begin, cpu::transposed(cpu::row_major(a.view())),
                             cpu::submatrix(cpu::row_major(b.view()), begin, 0), c.bytes.data());
      product.a = cpu::submatrix(product.a, 0, begin);
      product.starts_at_c = true;
      product.depth_block = cpu::kMaxDepthBlock;
      cpu::matmul(product, ScratchMemory().get());
    };
    add(0, kDepth, whole);
    add(0, cpu::kMaxDepthBlock, cut);
    add(cpu::kMaxDepthBlock, kDepth, cut);
    EXPECT_EQ(cut.bytes, whole.bytes);
  });
}

/// Any bits, but for the numbers that are none.
Tensor any_numbers(Shape shape, std::uint64_t seed) {
  Random random(seed, 9);
  Tensor tensor(DType::bf16, shape);
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    auto& bits = tensor.view().as<BFloat16>()[i].bits;
    bits = static_cast<std::uint16_t>(random.below(0x10000));
    if ((bits & 0x7f80u) == 0x7f80u) bits = static_cast<std::uint16_t>(bits & 0xbfffu);
  }
  return tensor;
}
/// Products of these, and sums of them, lie around 2^-126.
Tensor small_numbers(Shape shape, std::uint64_t seed) {
  Tensor tensor = any_numbers(shape, seed);
  for (std::int64_t i = 0; i < shape.elements(); ++i) {
    auto& bits = tensor.view().as<BFloat16>()[i].bits;
    bits = static_cast<std::uint16_t>((bits & 0x807fu) | ((63u + (bits >> 7) % 4) << 7));
  }
  return tensor;
}

TEST(Amx, OfTheProcessorHasTheBitsOfTheEmulation) {
  if (!cpu::has_amx()) GTEST_SKIP() << "this processor has no AMX, or the system does not let it be used";
  for (const std::int64_t depth : {1, 31, 32, 70, 640}) {
    for (const auto& numbers : {any_numbers, small_numbers}) {
      for (const std::int64_t rows : {1, 5, 40}) {
        const Tensor a = numbers({rows, depth}, 1), b = numbers({depth, 50}, 2);
        std::vector<std::vector<float>> results;
        test::with_each_kind_of_amx_tiles([&](const char*) { results.push_back(product_of(a, b)); });
        ASSERT_EQ(results.size(), 2u);
        for (std::size_t i = 0; i < results[0].size(); ++i) {
          if (std::isnan(results[1][i])) {  // infinity less infinity; its bits are nobody's promise
            EXPECT_TRUE(std::isnan(results[0][i])) << rows << 'x' << depth << ", " << i;
          } else {
            EXPECT_EQ(std::bit_cast<std::uint32_t>(results[0][i]), std::bit_cast<std::uint32_t>(results[1][i]))
                << rows << 'x' << depth << ", " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace heddle
