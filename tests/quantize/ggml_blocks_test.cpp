#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "quantize/decode.h"

namespace heddle {
namespace {

std::filesystem::path quants() {
  const char* data = std::getenv("HEDDLE_DATA");
  return std::filesystem::path(data != nullptr ? data : HEDDLE_SOURCE_DIR "/../shared/data") / "golden/ggml_quants";
}

template <typename Element>
std::vector<Element> read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<Element> elements(bytes.size() / sizeof(Element));
  std::memcpy(elements.data(), bytes.data(), elements.size() * sizeof(Element));
  return elements;
}

struct Named {
  DType type;
  const char* name;
};

constexpr Named kDecoded[] = {{DType::f16, "f16"},       {DType::bf16, "bf16"},    {DType::q4_0, "q4_0"},
                              {DType::q4_1, "q4_1"},     {DType::q5_0, "q5_0"},    {DType::q5_1, "q5_1"},
                              {DType::q8_0, "q8_0"},     {DType::q2_k, "q2_K"},    {DType::q3_k, "q3_K"},
                              {DType::q4_k, "q4_K"},     {DType::q5_k, "q5_K"},    {DType::q6_k, "q6_K"},
                              {DType::iq4_nl, "iq4_nl"}, {DType::iq4_xs, "iq4_xs"}};

std::string name_of(const testing::TestParamInfo<Named>& info) { return info.param.name; }

/// Blocks that ggml made of 4 x 256 random values, and what its own functions make of them.
class GgmlBlocks : public testing::TestWithParam<Named> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(quants())) GTEST_SKIP() << quants() << " is absent";
  }
};
class GgmlEncoded : public GgmlBlocks {};

TEST_P(GgmlBlocks, AreDecodedToTheBitsOfGgml) {
  const auto bytes = read_all<std::byte>(quants() / (std::string(GetParam().name) + ".bin"));
  const auto want = read_all<float>(quants() / (std::string(GetParam().name) + ".deq.f32"));
  ASSERT_EQ(want.size(), 1024u);
  ASSERT_EQ(static_cast<std::int64_t>(bytes.size()), storage_bytes(GetParam().type, 1024));
  std::vector<float> got(1024);
  decode(GetParam().type, bytes.data(), 1024, 0, 1024, got.data());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], want[i]) << i;
  EXPECT_EQ(std::memcmp(got.data(), want.data(), sizeof(float) * want.size()), 0) << "the sign of a zero";
  std::vector<float> part(256);
  decode(GetParam().type, bytes.data(), 1024, 512, 256, part.data());
  EXPECT_EQ(std::memcmp(part.data(), want.data() + 512, sizeof(float) * 256), 0);
}

TEST_P(GgmlEncoded, HaveTheBytesOfGgml) {
  const auto values = read_all<float>(quants() / "input_4x256.f32");
  const auto want = read_all<std::byte>(quants() / (std::string(GetParam().name) + ".bin"));
  ASSERT_EQ(values.size(), 1024u);
  std::vector<std::byte> got(want.size());
  ASSERT_TRUE(has_encoder(GetParam().type));
  encode(GetParam().type, values.data(), 1024, got.data());
  EXPECT_EQ(got, want);
}

INSTANTIATE_TEST_SUITE_P(Types, GgmlBlocks, testing::ValuesIn(kDecoded), name_of);
INSTANTIATE_TEST_SUITE_P(Types, GgmlEncoded, testing::ValuesIn(kDecoded, kDecoded + 7), name_of);

std::vector<std::byte> encoded(DType type, const std::vector<float>& values) {
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> bytes(static_cast<std::size_t>(storage_bytes(type, count)));
  encode(type, values.data(), count, bytes.data());
  return bytes;
}

std::string error_of(DType type, const std::vector<float>& values) {
  try {
    encoded(type, values);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// 127 steps of 2 with scale 2: every value is a code, so nothing is rounded.
TEST(GgmlEncode, KeepsValuesThatAreCodes) {
  std::vector<float> values(64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i) * 8 - 254);
  const auto bytes = encoded(DType::q8_0, values);
  EXPECT_EQ(static_cast<int>(bytes[0]) | static_cast<int>(bytes[1]) << 8, 0x4000);  // 2 in fp16
  std::vector<float> back(values.size());
  decode(DType::q8_0, bytes.data(), 64, 0, 64, back.data());
  EXPECT_EQ(std::vector<float>(back.begin(), back.begin() + 32),
            std::vector<float>(values.begin(), values.begin() + 32));
}

TEST(GgmlEncode, GivesZeroForValuesTooSmallForAScale) {
  std::vector<float> values(32, 1e-42f);
  values[3] = -1e-42f;
  for (const DType type : {DType::q8_0, DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1}) {
    std::vector<float> back(32, 1.0f);
    decode(type, encoded(type, values).data(), 32, 0, 32, back.data());
    for (const float value : back) EXPECT_EQ(value, 0.0f) << safetensors_name(type);
  }
}

TEST(GgmlEncode, RefusesWhatHasNoCode) {
  std::vector<float> values(32, 1.0f);
  values[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(error_of(DType::q8_0, values), "a value is not finite: it has no code in Q8_0");
  values[7] = 1e30f;
  EXPECT_NE(error_of(DType::q8_0, values).find("beyond the range of fp16"), std::string::npos);
  values[7] = 1.0f;
  EXPECT_EQ(error_of(DType::q4_k, values), "values cannot be encoded as Q4_K");
}

TEST(GgmlDecode, RefusesTypesWithoutADecoderByName) {
  const std::vector<std::byte> bytes(66);
  std::vector<float> out(256);
  try {
    decode(DType::iq2_xxs, bytes.data(), 256, 0, 256, out.data());
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "values of type IQ2_XXS cannot be decoded");
  }
}

}  // namespace
}  // namespace heddle
