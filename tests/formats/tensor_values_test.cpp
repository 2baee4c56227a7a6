#include "formats/tensor_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "safetensors_files.h"

namespace heddle {
namespace {

template <typename Element>
Json values_of(DType dtype, std::initializer_list<Element> elements) {
  const std::vector<Element> list(elements);
  Json values = Json::array();
  append_values(dtype, std::as_bytes(std::span(list)), values);
  return values;
}
Json codes(DType dtype, std::initializer_list<int> list) {
  std::vector<std::uint8_t> bytes(list.begin(), list.end());
  Json values = Json::array();
  append_values(dtype, std::as_bytes(std::span(bytes)), values);
  return Json::parse(values.dump());  // as a reader sees it
}

TEST(TensorValues, WholeNumbersKeepEveryBit) {
  EXPECT_EQ(values_of<std::int64_t>(DType::i64, {INT64_MIN, -1, INT64_MAX}).dump(),
            "[-9223372036854775808,-1,9223372036854775807]");
  EXPECT_EQ(values_of<std::uint64_t>(DType::u64, {0, UINT64_MAX}).dump(), "[0,18446744073709551615]");
  EXPECT_EQ(values_of<std::uint16_t>(DType::u16, {65535}).dump(), "[65535]");
  EXPECT_EQ(values_of<std::int8_t>(DType::i8, {-128, 127}).dump(), "[-128,127]");
  EXPECT_EQ(values_of<std::uint8_t>(DType::boolean, {0, 1}).dump(), "[false,true]");
  EXPECT_EQ(values_of<float>(DType::c64, {1.5f, -2.0f, 0.0f, 0.25f}).dump(), "[[1.5,-2.0],[0.0,0.25]]");
}

// Table 1 of arXiv:2209.05433, and the formulas of the others' bias and special codes.
TEST(TensorValues, Floats8AreThoseOfTheirDefinitions) {
  EXPECT_EQ(codes(DType::f8_e4m3, {0x00, 0x01, 0x08, 0x38, 0x7e, 0x7f, 0xfe, 0xff, 0x07}),
            Json::array({0.0, std::ldexp(1, -9), std::ldexp(1, -6), 1.0, 448.0, nullptr, -448.0, nullptr,
                         0.875 * std::ldexp(1, -6)}));
  EXPECT_EQ(codes(DType::f8_e5m2, {0x01, 0x04, 0x3c, 0x7b, 0x7c, 0x7f, 0xfb}),
            Json::array({std::ldexp(1, -16), std::ldexp(1, -14), 1.0, 57344.0, nullptr, nullptr, -57344.0}));
  EXPECT_EQ(codes(DType::f8_e4m3fnuz, {0x01, 0x40, 0x7f, 0x80, 0xff}),
            Json::array({std::ldexp(1, -10), 1.0, 240.0, nullptr, -240.0}));
  EXPECT_EQ(codes(DType::f8_e5m2fnuz, {0x01, 0x40, 0x7f, 0x80}),
            Json::array({std::ldexp(1, -17), 1.0, 57344.0, nullptr}));
  EXPECT_EQ(codes(DType::f8_e8m0, {0, 127, 130, 254, 255}),
            Json::array({std::ldexp(1, -127), 1.0, 8.0, std::ldexp(1, 127), nullptr}));
}

TEST(TensorValues, PackedTypesAreRefusedByName) {
  EXPECT_FALSE(has_values(DType::f4));
  EXPECT_TRUE(has_values(DType::f8_e8m0));
  Json values = Json::array();
  EXPECT_NE(error_of([&] { append_values(DType::f6_e2m3, {}, values); }).find("F6_E2M3"), std::string::npos);
}

}  // namespace
}  // namespace heddle
