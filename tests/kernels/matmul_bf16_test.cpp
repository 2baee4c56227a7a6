// Products of bf16, whose order of sums and rounding are a promise: with the processor's instructions, and without.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <optional>
#include <span>
#include <utility>
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

/// A term of a sum: the factors of a product.
struct Term {
  float a = 0.0f, b = 0.0f;
};

/// Intel 64 and IA-32 Architectures Software Developer's Manual, VDPBF16PS: a sum takes the product of the upper halves
/// of a pair, then that of the lower ones; each product is exact and each sum rounded to nearest even.
float add_one_by_one(float sum, Term first, Term second) {
  return std::fma(first.a, first.b, std::fma(second.a, second.b, sum));
}

/// Arm Architecture Reference Manual, FPAdd_BF16 and BFRound: numbers below 2^-126 are zero, and of an inexact sum the
/// last bit is 1.
float add_to_odd(float a, float b) {
  const auto flush = [](double x) { return std::abs(x) < 0x1p-126 ? std::copysign(0.0, x) : x; };
  const double x = flush(a), y = flush(b), sum = x + y;
  // What the sum in double lost (Knuth's two-sum) has a sign; towards it or from it lies a number that ends in 1.
  const double rest = (x - (sum - (sum - x))) + (y - (sum - x));
  auto bits = std::bit_cast<std::uint64_t>(sum);
  if (rest != 0.0) bits = ((rest < 0.0) == (sum < 0.0) ? bits : bits - 1) | 1;
  // The same from double to float: cut off, and 1 where that lost something.
  const auto exact = std::bit_cast<double>(bits);
  auto rounded = std::bit_cast<std::uint32_t>(static_cast<float>(exact));
  if (std::abs(static_cast<double>(std::bit_cast<float>(rounded))) > std::abs(exact)) --rounded;
  if (static_cast<double>(std::bit_cast<float>(rounded)) != exact) rounded |= 1;
  return static_cast<float>(flush(std::bit_cast<float>(rounded)));
}

/// There too, BFDotAdd without FPCR.EBF. Products of bf16 are exact, if they are no smaller than 2^-126.
float add_pair_to_odd(float sum, Term first, Term second) {
  return add_to_odd(sum, add_to_odd(first.a * first.b, second.a * second.b));
}

float sum_of_pairs(std::span<const Term> terms) {
  const auto add_pair = cpu::bf16_pair_sum() == cpu::PairSum::to_odd ? add_pair_to_odd : add_one_by_one;
  float sum = 0.0f;
  for (std::size_t k = 0; k < terms.size(); k += 2) {
    sum = add_pair(sum, terms[k], k + 1 < terms.size() ? terms[k + 1] : Term{});
  }
  return sum;
}

/// Intel's manual, TDPBF16PS: of a row of 32 terms, those of even and those of odd index are added up apart, then both
/// sums to each other and to what is there; each to nearest even. Not for sums that come near 2^-126.
float sum_of_amx(std::span<const Term> terms) {
  float sum = 0.0f;
  for (std::size_t row = 0; row < terms.size(); row += 32) {
    std::array<float, 2> of_halves = {};
    for (std::size_t k = row; k < std::min(terms.size(), row + 32); ++k) {
      of_halves[k % 2] = std::fma(terms[k].a, terms[k].b, of_halves[k % 2]);
    }
    sum += of_halves[0] + of_halves[1];
  }
  return sum;
}

/// Blocks of depth as products have them now.
Tensor by_the_manual(const Factor& a, const Factor& b, const Extents& e) {
  const auto sum_of = cpu::amx_tiles() == cpu::AmxTiles::none ? sum_of_pairs : sum_of_amx;
  const auto a_values = a.rounded(), b_values = b.rounded();
  std::vector<Term> terms;
  Tensor c(DType::f32, {e.rows, e.columns});
  const std::int64_t block = cpu::depth_block(e.depth);
  for (std::int64_t i = 0; i < e.rows; ++i) {
    for (std::int64_t j = 0; j < e.columns; ++j) {
      float total = 0.0f;
      for (std::int64_t begin = 0; begin < e.depth; begin += block) {
        terms.clear();
        for (std::int64_t k = begin; k < std::min(e.depth, begin + block); ++k) {
          terms.push_back({a_values[a.at(i, k)], b_values[b.at(k, j)]});
        }
        const float sum = sum_of(terms);
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
        std::optional<std::pair<cpu::AmxTiles, cpu::PairSum>> sums;
        Tensor expected;
        test::with_each_way_to_multiply([&](const char* name) {
          const std::pair sums_now = {cpu::amx_tiles(), cpu::bf16_pair_sum()};
          if (sums != sums_now) expected = by_the_manual(a, b, e);
          sums = sums_now;
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

// The tests above hold products on Arm to this function, so it is held to sums made by hand.
TEST(MatmulOfBFloat16, RoundsToOddInTheReferenceAsArmDefinesIt) {
  EXPECT_EQ(add_to_odd(1.0f, 1.0f), 2.0f);                             // exact sums stay
  EXPECT_EQ(add_to_odd(1.0f, 0x1p-23f), 1.0f + 0x1p-23f);              // and odd ones
  EXPECT_EQ(add_to_odd(1.0f, 0x1p-80f), 1.0f + 0x1p-23f);              // any rest makes the last bit 1
  EXPECT_EQ(add_to_odd(1.0f + 0x1p-23f, 0x1p-80f), 1.0f + 0x1p-23f);   // where it is 1 the rest is cut off
  EXPECT_EQ(add_to_odd(1.0f + 0x1p-22f, -0x1p-80f), 1.0f + 0x1p-23f);  // from below
  EXPECT_EQ(add_to_odd(1.0f, -0x1p-80f), 1.0f - 0x1p-24f);
  EXPECT_EQ(add_to_odd(-1.0f, 0x1p-30f), -1.0f + 0x1p-24f);
  EXPECT_EQ(add_to_odd(-1.0f, -0x1p-30f), -1.0f - 0x1p-23f);
  EXPECT_EQ(add_to_odd(0x1.8p-126f, -0x1p-126f), 0.0f);  // 2^-127 is zero
  EXPECT_EQ(add_to_odd(1.0f, -1.0f), 0.0f);
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
