#include "base/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"

namespace heddle {
namespace {

Float16 half_of(unsigned bits) {
  Float16 half;
  half.bits = static_cast<std::uint16_t>(bits);
  return half;
}
BFloat16 brain_of(unsigned bits) {
  BFloat16 brain;
  brain.bits = static_cast<std::uint16_t>(bits);
  return brain;
}

/// The value of an IEEE binary16 by its definition: (-1)^s * 2^(e-15) * (1 + m/1024), subnormals 2^-14 * m/1024.
double half_by_definition(unsigned bits) {
  const double sign = (bits & 0x8000u) != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>((bits >> 10) & 31u);
  const double mantissa = (bits & 1023u) / 1024.0;
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return exponent == 0 ? sign * std::ldexp(mantissa, -14) : sign * std::ldexp(1.0 + mantissa, exponent - 15);
}

TEST(DType, EveryHalfHasTheValueOfItsDefinitionAndComesBack) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const double expected = half_by_definition(bits);
    const auto value = static_cast<float>(half_of(bits));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(static_cast<float>(Float16(value)))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), expected) << bits;
    ASSERT_EQ(std::signbit(value), std::signbit(expected)) << bits;
    ASSERT_EQ(Float16(value).bits, bits);
  }
}

TEST(DType, EveryBrainFloatComesBack) {
  for (unsigned bits = 0; bits < 65536; ++bits) {
    const auto value = static_cast<float>(brain_of(bits));
    ASSERT_EQ(std::bit_cast<std::uint32_t>(value), bits << 16);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(static_cast<float>(BFloat16(value)))) << bits;
    } else {
      ASSERT_EQ(BFloat16(value).bits, bits);
    }
  }
}

TEST(DType, HalfwayGoesToTheEvenNeighbourAndAllElseToTheNearer) {
  for (unsigned bits = 0; bits < 0x7c00u; ++bits) {
    const double low = half_by_definition(bits);
    const double high = bits == 0x7bffu ? 65536.0 : half_by_definition(bits + 1);  // 65536 would be the next
    const auto middle = static_cast<float>((low + high) / 2);                      // exact in fp32
    const unsigned even = (bits & 1u) == 0 ? bits : bits + 1;
    ASSERT_EQ(Float16(middle).bits, even) << bits;
    ASSERT_EQ(Float16(-middle).bits, even | 0x8000u) << bits;
    ASSERT_EQ(Float16(std::nextafter(middle, 0.0f)).bits, bits) << bits;
    ASSERT_EQ(Float16(std::nextafter(middle, 1e9f)).bits, bits + 1) << bits;
  }
}

TEST(DType, BrainFloatsRoundToNearestEven) {
  for (unsigned bits = 0; bits < 0x7f80u; ++bits) {
    const std::uint32_t middle = (bits << 16) | 0x8000u;
    const unsigned even = (bits & 1u) == 0 ? bits : bits + 1;
    ASSERT_EQ(BFloat16(std::bit_cast<float>(middle)).bits, even) << bits;
    ASSERT_EQ(BFloat16(std::bit_cast<float>(middle - 1)).bits, bits) << bits;
    ASSERT_EQ(BFloat16(std::bit_cast<float>(middle + 1)).bits, bits + 1) << bits;
  }
}

TEST(DType, RoundingNeverMakesANanInfinite) {
  const float signalling = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(static_cast<float>(BFloat16(signalling))));
  EXPECT_TRUE(std::isnan(static_cast<float>(Float16(signalling))));
}

TEST(DType, OverflowOfHalfIsInfinityFrom65520) {
  EXPECT_EQ(Float16(65519.996f).bits, 0x7bffu);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7c00u);
  EXPECT_EQ(Float16(-1e30f).bits, 0xfc00u);
}

TEST(DType, ConvertAgreesWithTheElementTypesForEveryPair) {
  constexpr std::int64_t kCount = 1000;
  Random random(3, 1);
  std::vector<double> values(kCount);
  // Small enough for every type; from fp32, so that no source rounds twice.
  for (auto& value : values) value = static_cast<float>(random.normal() * 10);
  const DType types[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
  for (const auto source : types) {
    std::vector<std::byte> from(kCount * 8);
    convert(values.data(), DType::f64, from.data(), source, kCount);
    std::vector<double> exact(kCount);
    convert(from.data(), source, exact.data(), DType::f64, kCount);
    for (const auto target : types) {
      std::vector<std::byte> to(kCount * 8);
      convert(from.data(), source, to.data(), target, kCount);
      std::vector<double> result(kCount);
      convert(to.data(), target, result.data(), DType::f64, kCount);
      for (std::size_t i = 0; i < kCount; ++i) {
        const auto wide = static_cast<float>(exact[i]);
        const double expected = target == DType::bf16  ? static_cast<float>(BFloat16(wide))
                                : target == DType::f16 ? static_cast<float>(Float16(wide))
                                                       : static_cast<double>(wide);
        ASSERT_EQ(result[i], expected) << torch_name(source) << " to " << torch_name(target);
      }
    }
  }
  EXPECT_THROW(convert(values.data(), DType::f64, values.data(), DType::i32, 1), Error);
  EXPECT_THROW(convert(values.data(), DType::u8, values.data(), DType::f32, 1), Error);
}

// Names and sizes as https://github.com/huggingface/safetensors (README, "Format") and PyTorch's documentation list
// them.
TEST(DType, NamesGoBothWays) {
  const struct {
    DType type;
    const char *safetensors, *torch;
    std::size_t bytes;
  } kExpected[] = {{DType::f64, "F64", "float64", 8},
                   {DType::f32, "F32", "float32", 4},
                   {DType::bf16, "BF16", "bfloat16", 2},
                   {DType::f16, "F16", "float16", 2},
                   {DType::i64, "I64", "int64", 8},
                   {DType::i32, "I32", "int32", 4},
                   {DType::i16, "I16", "int16", 2},
                   {DType::i8, "I8", "int8", 1},
                   {DType::u8, "U8", "uint8", 1},
                   {DType::boolean, "BOOL", "bool", 1},
                   {DType::f8_e4m3, "F8_E4M3", "float8_e4m3fn", 1},
                   {DType::f8_e5m2, "F8_E5M2", "float8_e5m2", 1},
                   {DType::u16, "U16", "uint16", 2},
                   {DType::u32, "U32", "uint32", 4},
                   {DType::u64, "U64", "uint64", 8}};
  for (const auto& expected : kExpected) {
    EXPECT_EQ(safetensors_name(expected.type), expected.safetensors);
    EXPECT_EQ(torch_name(expected.type), expected.torch);
    EXPECT_EQ(dtype_bytes(expected.type), expected.bytes);
    EXPECT_EQ(dtype_from_safetensors(expected.safetensors), expected.type);
    EXPECT_EQ(dtype_from_torch(expected.torch), expected.type);
  }
  EXPECT_THROW(dtype_from_torch("float31"), Error);
  EXPECT_THROW(dtype_from_safetensors("f32"), Error);
}

}  // namespace
}  // namespace heddle
