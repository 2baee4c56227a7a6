#include "quantize/four_bit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "quantize/decode.h"

namespace heddle {
namespace {

constexpr DType kTypes[] = {DType::nf4, DType::nf4_double, DType::fp4, DType::fp4_double};

std::vector<float> normal_values(std::int64_t count, std::uint64_t seed = 1) {
  Random random(seed, 3);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random.normal());
  return values;
}

std::vector<std::byte> encoded(DType type, const std::vector<float>& values, std::int64_t piece = 1 << 30) {
  const auto elements = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> tensor(static_cast<std::size_t>(storage_bytes(type, elements)), std::byte{0xff});
  FourBitEncoder encoder(type, elements, tensor);
  for (std::int64_t begin = 0; begin < elements; begin += piece) {
    const auto count = static_cast<std::size_t>(std::min(piece, elements - begin));
    encoder.encode(begin, std::span(values).subspan(static_cast<std::size_t>(begin), count));
  }
  encoder.finish();
  return tensor;
}

std::vector<float> decoded(DType type, const std::vector<std::byte>& tensor, std::int64_t elements) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  decode(type, tensor.data(), elements, 0, elements, values.data());
  return values;
}

// Values printed by bitsandbytes 0.50.2: create_dynamic_map(), its entries 0, 1, 2, 100, 126 ... 129, 200, 254, 255.
TEST(FourBit, ScaleValuesAreThoseOfTheDynamicDataType) {
  const std::array<float, 256>& values = nested_scale_values();
  const std::pair<std::size_t, float> printed[] = {{0, -0.992968738079071f},
                                                   {1, -0.9789062738418579f},
                                                   {2, -0.96484375f},
                                                   {100, -0.0074687497690320015f},
                                                   {126, -5.500000384017767e-07f},
                                                   {127, 0.0f},
                                                   {128, 5.500000384017767e-07f},
                                                   {129, 3.250000190746505e-06f},
                                                   {200, 0.23359374701976776f},
                                                   {254, 0.992968738079071f},
                                                   {255, 1.0f}};
  for (const auto& [index, value] : printed) EXPECT_EQ(values[index], value) << index;
  EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
}

TEST(FourBit, EveryCodeOfABlockIsThatOfTheNearestValue) {
  const auto values = normal_values(64 * 40);
  for (const DType type : {DType::nf4, DType::fp4}) {
    const auto tensor = encoded(type, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t block = i / 64 * 64;
      float scale = 0.0f;
      for (std::size_t j = block; j < block + 64; ++j) scale = std::max(scale, std::abs(values[j]));
      std::size_t nearest = 0;
      for (std::size_t code = 1; code < 16; ++code) {
        const auto distance = [&](std::size_t c) { return std::abs(values[i] / scale - four_bit_values(type)[c]); };
        if (distance(code) < distance(nearest)) nearest = code;
      }
      const auto pair = std::to_integer<unsigned>(tensor[i / 2]);
      const unsigned code = i % 2 == 0 ? pair >> 4 : pair & 15u;
      ASSERT_EQ(four_bit_values(type)[code], four_bit_values(type)[nearest]) << i;  // FP4 has two zeros
    }
  }
}

// The codes that bitsandbytes 0.50.2 gave for this block. Of its two zeros a small positive number takes the second.
TEST(FourBit, Fp4HasTheCodesOfBitsandbytes) {
  std::vector<float> values(64, 0.0f);
  const float first[] = {1.0f, 1e-3f, -1e-3f, 0.0f, -0.0f, 0.0052f, -0.9f};
  std::copy(std::begin(first), std::end(first), values.begin());
  const auto tensor = encoded(DType::fp4, values);
  const unsigned expected[] = {0x38, 0x00, 0x01, 0xb0, 0x00};
  for (std::size_t i = 0; i < std::size(expected); ++i) {
    EXPECT_EQ(std::to_integer<unsigned>(tensor[i]), expected[i]) << i;
  }
}

// Printed by bitsandbytes 0.50.2: get_4bit_type("fp4").
TEST(FourBit, Fp4ValuesAreThoseOfBitsandbytes) {
  const float printed[] = {0.0f,
                           0.0052083334885537624f,
                           0.6666666865348816f,
                           1.0f,
                           0.3333333432674408f,
                           0.5f,
                           0.1666666716337204f,
                           0.25f,
                           0.0f,
                           -0.0052083334885537624f,
                           -0.6666666865348816f,
                           -1.0f,
                           -0.3333333432674408f,
                           -0.5f,
                           -0.1666666716337204f,
                           -0.25f};
  EXPECT_TRUE(std::equal(kFp4Values.begin(), kFp4Values.end(), std::begin(printed), std::end(printed)));
}

// The block [1, -1, 0.5, 0, ...]: codes 15, 0, 12 (0.4407 is nearer to 0.5 than 0.5626), 7.
TEST(FourBit, LaysOutCodesFirstElementInTheUpperHalfThenScales) {
  std::vector<float> values(67, 0.0f);
  values[0] = 2.0f;
  values[1] = -2.0f;
  values[2] = 1.0f;
  values[64] = -0.25f;
  const auto tensor = encoded(DType::nf4, values);
  ASSERT_EQ(tensor.size(), 36u + 8u);
  EXPECT_EQ(tensor[0], std::byte{0xf0});
  EXPECT_EQ(tensor[1], std::byte{0xc7});
  EXPECT_EQ(tensor[2], std::byte{0x77});
  EXPECT_EQ(tensor[32], std::byte{0x07});
  EXPECT_EQ(tensor[33], std::byte{0x77});  // the element that is not there has the code of 0, as in bitsandbytes
  EXPECT_EQ(tensor[34], std::byte{0});
  float scales[2] = {};
  std::memcpy(scales, tensor.data() + 36, sizeof(scales));
  EXPECT_EQ(scales[0], 2.0f);
  EXPECT_EQ(scales[1], 0.25f);
  const auto back = decoded(DType::nf4, tensor, 67);
  EXPECT_EQ(back[0], 2.0f);
  EXPECT_EQ(back[1], -2.0f);
  EXPECT_EQ(back[2], 2.0f * 0.44070982933044434f);
  EXPECT_EQ(back[3], 0.0f);
  EXPECT_EQ(back[64], -0.25f);
}

TEST(FourBit, DoubleQuantizationKeepsScalesWithinTheStepsOfTheirCodes) {
  for (const std::int64_t elements : {1, 64, 1000, 64 * 256, 64 * 300 + 5}) {
    const auto values = normal_values(elements);
    const auto single = encoded(DType::nf4, values), twice = encoded(DType::nf4_double, values);
    const FourBitLayout one(DType::nf4, elements), two(DType::nf4_double, elements);
    ASSERT_EQ(std::memcmp(single.data(), twice.data(), static_cast<std::size_t>(one.scales)), 0) << "codes";
    std::vector<float> scales;
    for (std::int64_t block = 0; block < one.blocks; ++block) {
      scales.push_back(four_bit_scale(DType::nf4, one, single.data(), block));
    }
    const double mean = std::accumulate(scales.begin(), scales.end(), 0.0) / static_cast<double>(scales.size());
    float stored_mean = 0.0f;
    std::memcpy(&stored_mean, twice.data() + two.mean, sizeof(stored_mean));
    EXPECT_EQ(stored_mean, static_cast<float>(mean));
    for (std::int64_t block = 0; block < one.blocks; ++block) {
      const std::int64_t first = block / 256 * 256, last = std::min(one.blocks, first + 256);
      double greatest = 0.0;
      for (std::int64_t i = first; i < last; ++i) {
        greatest = std::max(greatest, std::abs(static_cast<double>(scales[static_cast<std::size_t>(i)]) - mean));
      }
      // Neighbouring values of the data type are at most 0.9 / 64 apart.
      EXPECT_NEAR(four_bit_scale(DType::nf4_double, two, twice.data(), block), scales[static_cast<std::size_t>(block)],
                  greatest * 0.9 / 64 / 2 + 1e-6)
          << block << " of " << elements;
    }
  }
}

TEST(FourBit, PiecesGiveTheBytesOfTheWhole) {
  const auto values = normal_values(64 * 256 * 3 + 77);
  for (const DType type : kTypes) {
    const auto whole = encoded(type, values);
    EXPECT_EQ(encoded(type, values, 64 * 256), whole);
    EXPECT_EQ(encoded(type, values, 64), whole);
  }
}

TEST(FourBit, AnyRunDecodesToThatPartOfTheTensor) {
  constexpr std::int64_t kElements = 64 * 5 + 7;
  const auto values = normal_values(kElements);
  for (const DType type : kTypes) {
    const auto tensor = encoded(type, values);
    const auto whole = decoded(type, tensor, kElements);
    for (const std::int64_t begin : {0, 1, 63, 64, 200, 326}) {
      for (const std::int64_t count : {0, 1, 2, 64, 127}) {
        const std::int64_t taken = std::min(count, kElements - begin);
        std::vector<float> run(static_cast<std::size_t>(taken));
        decode_four_bit(type, tensor.data(), kElements, begin, taken, run.data());
        EXPECT_TRUE(std::equal(run.begin(), run.end(), whole.begin() + begin)) << begin << ", " << count;
      }
    }
  }
}

TEST(FourBit, ZerosStayZeros) {
  for (const DType type : kTypes) {
    for (const float value : decoded(type, encoded(type, std::vector<float>(200, 0.0f)), 200)) EXPECT_EQ(value, 0.0f);
  }
}

TEST(FourBit, PiecesThatCutABlockAreRefused) {
  std::vector<std::byte> tensor(static_cast<std::size_t>(storage_bytes(DType::nf4, 200)));
  FourBitEncoder encoder(DType::nf4, 200, tensor);
  const std::vector<float> values(200);
  EXPECT_THROW(encoder.encode(32, std::span(values).first(64)), Error);
  EXPECT_THROW(encoder.encode(0, std::span(values).first(65)), Error);
  EXPECT_THROW(encoder.encode(64, values), Error);
}

}  // namespace
}  // namespace heddle
