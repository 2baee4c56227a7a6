#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "base/random.h"
#include "kernels/cpu/kernels.h"

namespace heddle {
namespace {

std::vector<double> default_inv_freq(std::int64_t half, double theta) {
  std::vector<double> result;
  for (std::int64_t j = 0; j < half; ++j)
    result.push_back(std::pow(theta, -static_cast<double>(j) / static_cast<double>(half)));
  return result;
}

struct Table {
  std::vector<float> cos, sin;
};

Table make_table(std::vector<std::int32_t> positions, std::vector<std::int32_t> starts, std::int64_t half,
                 const Attributes& attributes, std::int64_t past = 0) {
  const auto tokens = static_cast<std::int64_t>(positions.size());
  Table table{std::vector<float>(positions.size() * static_cast<std::size_t>(half)), {}};
  table.sin = table.cos;
  Scalars scalars;
  scalars.tokens = tokens;
  scalars.documents = static_cast<std::int64_t>(starts.size()) - 1;
  scalars.past = past;
  const std::array in{TensorView{positions.data(), DType::i32, {tokens}},
                      TensorView{starts.data(), DType::i32, {static_cast<std::int64_t>(starts.size())}}};
  const std::array out{TensorView{table.cos.data(), DType::f32, {tokens, half}},
                       TensorView{table.sin.data(), DType::f32, {tokens, half}}};
  cpu::rope_table({in, out, attributes, scalars, {}});
  return table;
}

TEST(RopeTable, AnglesArePositionTimesInverseFrequency) {
  const std::int64_t half = 5;
  const auto inv_freq = default_inv_freq(half, 10000.0);
  const std::vector<std::int32_t> positions{0, 1, 2, 0, 1, 131071};
  const Table table = make_table(positions, {0, 3, 6}, half, {{"inv_freq", inv_freq}, {"attention_factor", 1.25}});
  for (std::size_t t = 0; t < positions.size(); ++t) {
    for (std::size_t j = 0; j < 5; ++j) {
      const double angle = positions[t] * inv_freq[j];
      EXPECT_EQ(table.cos[t * 5 + j], static_cast<float>(1.25 * std::cos(angle)));
      EXPECT_EQ(table.sin[t * 5 + j], static_cast<float>(1.25 * std::sin(angle)));
    }
  }
}

/// Inverse frequencies of transformers' "dynamic" rope for a sequence of `ids`, written out.
std::vector<double> dynamic_inv_freq(double ids, double theta, double factor, double original, double dimensions) {
  const double base = theta * std::pow(factor * ids / original - (factor - 1.0), dimensions / (dimensions - 2.0));
  std::vector<double> result;
  for (double d = 0.0; d < dimensions; d += 2.0) result.push_back(1.0 / std::pow(base, d / dimensions));
  return result;
}

void expect_row(const Table& table, std::size_t row, double position, const std::vector<double>& inv_freq) {
  for (std::size_t j = 0; j < inv_freq.size(); ++j) {
    EXPECT_NEAR(table.cos[row * inv_freq.size() + j], std::cos(position * inv_freq[j]), 1e-7) << row << ", " << j;
    EXPECT_NEAR(table.sin[row * inv_freq.size() + j], std::sin(position * inv_freq[j]), 1e-7) << row << ", " << j;
  }
}

Attributes dynamic_attributes(const std::vector<double>& inv_freq) {
  return {{"inv_freq", inv_freq},
          {"dynamic_theta", 10000.0},
          {"dynamic_factor", 2.0},
          {"original_positions", std::int64_t{8}}};
}

TEST(RopeTable, DynamicScalesEachDocumentByItsNumberOfIds) {
  const auto inv_freq = default_inv_freq(4, 10000.0);
  // Documents of 7, 8 and 12 positions have 8, 9 and 13 ids; only more than 8 are stretched.
  std::vector<std::int32_t> positions;
  for (std::int32_t length : {7, 8, 12}) {
    for (std::int32_t i = 0; i < length; ++i) positions.push_back(i);
  }
  const Table table = make_table(positions, {0, 7, 15, 27}, 4, dynamic_attributes(inv_freq));
  expect_row(table, 6, 6, inv_freq);
  expect_row(table, 14, 7, dynamic_inv_freq(9, 10000.0, 2.0, 8.0, 8.0));
  expect_row(table, 26, 11, dynamic_inv_freq(13, 10000.0, 2.0, 8.0, 8.0));
}

TEST(RopeTable, DynamicInGenerationCountsTheIdsSoFar) {
  const auto inv_freq = default_inv_freq(4, 10000.0);
  Attributes attributes = dynamic_attributes(inv_freq);
  attributes.set("cached", std::int64_t{1});
  std::vector<std::int32_t> prompt(10);
  for (std::int32_t i = 0; i < 10; ++i) prompt[static_cast<std::size_t>(i)] = i;
  expect_row(make_table(prompt, {0, 10}, 4, attributes), 9, 9, dynamic_inv_freq(10, 10000.0, 2.0, 8.0, 8.0));
  expect_row(make_table({10}, {0, 1}, 4, attributes, 10), 0, 10, dynamic_inv_freq(11, 10000.0, 2.0, 8.0, 8.0));
  expect_row(make_table({7}, {0, 1}, 4, attributes, 7), 0, 7, inv_freq);
}

TEST(RopeTable, LongropeChoosesByTheIdsOfEachDocument) {
  const auto short_ones = default_inv_freq(4, 10000.0), long_ones = default_inv_freq(4, 70000.0);
  Attributes attributes{
      {"inv_freq", short_ones}, {"long_inv_freq", long_ones}, {"original_positions", std::int64_t{8}}};
  // Documents of 7 and 8 positions have 8 and 9 ids.
  std::vector<std::int32_t> positions;
  for (std::int32_t length : {7, 8, 7}) {
    for (std::int32_t i = 0; i < length; ++i) positions.push_back(i);
  }
  const Table table = make_table(positions, {0, 7, 15, 22}, 4, attributes);
  for (const std::size_t first : {std::size_t{0}, std::size_t{7}, std::size_t{15}}) {
    for (std::size_t i = 0; i < 7; ++i)
      expect_row(table, first + i, static_cast<double>(i), first == 7 ? long_ones : short_ones);
  }
  attributes.set("cached", std::int64_t{1});
  expect_row(make_table({7}, {0, 1}, 4, attributes, 7), 0, 7, short_ones);
  expect_row(make_table({8}, {0, 1}, 4, attributes, 8), 0, 8, long_ones);
}

/// x [tokens, heads, dimensions] of A with a table of R/2 = half columns.
struct Rotation {
  std::int64_t tokens = 5, heads = 3, dimensions, half;
  DType type;
  std::vector<double> x;
  std::vector<std::byte> input;
  Table table;

  Rotation(std::int64_t d, std::int64_t r, DType a) : dimensions(d), half(r / 2), type(a) {
    Random random(3, 1);
    x.resize(static_cast<std::size_t>(tokens * heads * dimensions));
    for (double& value : x) value = random.normal();
    input = stored(x);
    x = loaded(input);
    table = make_table({3, 700, 2, 50, 1}, {0, 5}, half, {{"inv_freq", default_inv_freq(half, 100.0)}});
  }
  std::vector<std::byte> stored(const std::vector<double>& values) const {
    std::vector<std::byte> bytes(values.size() * dtype_bytes(type));
    convert(values.data(), DType::f64, bytes.data(), type, static_cast<std::int64_t>(values.size()));
    return bytes;
  }
  std::vector<double> loaded(const std::vector<std::byte>& bytes) const {
    std::vector<double> values(bytes.size() / dtype_bytes(type));
    convert(bytes.data(), type, values.data(), DType::f64, static_cast<std::int64_t>(values.size()));
    return values;
  }
  std::vector<std::byte> apply(Kernel kernel, std::vector<std::byte> bytes, bool in_place) {
    std::vector<std::byte> other(bytes.size());
    const Shape shape{tokens, heads, dimensions};
    const std::array in{TensorView{bytes.data(), type, shape}, TensorView{table.cos.data(), DType::f32, {tokens, half}},
                        TensorView{table.sin.data(), DType::f32, {tokens, half}}};
    const std::array out{TensorView{in_place ? bytes.data() : other.data(), type, shape}};
    const Scalars scalars;
    kernel({in, out, {}, scalars, {}});
    return in_place ? bytes : other;
  }
  /// The rotation by the table's angles, backwards for sign -1.
  std::vector<double> expected(const std::vector<double>& from, double sign) const {
    std::vector<double> y = from;
    for (std::int64_t row = 0; row < tokens * heads; ++row) {
      for (std::int64_t j = 0; j < half; ++j) {
        const auto entry = static_cast<std::size_t>(row / heads * half + j);
        const auto first = static_cast<std::size_t>(row * dimensions + j),
                   second = first + static_cast<std::size_t>(half);
        const double c = table.cos[entry], s = sign * table.sin[entry];
        y[first] = from[first] * c - from[second] * s;
        y[second] = from[second] * c + from[first] * s;
      }
    }
    return y;
  }
};

TEST(Rope, RotatesPairsHalfAHeadApart) {
  for (DType type : {DType::f32, DType::bf16, DType::f16}) {
    const double bound = type == DType::bf16 ? 0x1.0p-8 : type == DType::f16 ? 0x1.0p-11 : 3e-7;
    for (auto [dimensions, rotary] : {std::pair{2, 2}, {8, 8}, {64, 64}, {80, 32}, {96, 96}, {20, 10}, {33, 6}}) {
      Rotation rotation(dimensions, rotary, type);
      for (double sign : {1.0, -1.0}) {
        const Kernel kernel = sign > 0.0 ? cpu::rope : cpu::rope_backward;
        const auto y = rotation.apply(kernel, rotation.input, false);
        EXPECT_EQ(y, rotation.apply(kernel, rotation.input, true));
        const auto actual = rotation.loaded(y), expected = rotation.expected(rotation.x, sign);
        for (std::size_t i = 0; i < actual.size(); ++i) {
          const bool passes = static_cast<int>(i) % dimensions >= rotary;
          EXPECT_NEAR(actual[i], expected[i], passes ? 0.0 : bound * std::max(1.0, std::abs(expected[i]))) << i;
        }
      }
    }
  }
}

TEST(Rope, BackwardIsTheTransposeOfForward) {
  // <rope(x), y> = <x, rope_backward(y)>
  Rotation rotation(24, 16, DType::f32);
  std::vector<double> y(rotation.x.size());
  Random random(4, 4);
  for (double& value : y) value = random.normal();
  const auto forward = rotation.loaded(rotation.apply(cpu::rope, rotation.input, false));
  const auto backward = rotation.loaded(rotation.apply(cpu::rope_backward, rotation.stored(y), false));
  double left = 0.0, right = 0.0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    left += forward[i] * y[i];
    right += rotation.x[i] * backward[i];
  }
  EXPECT_NEAR(left, right, 1e-4);
}

}  // namespace
}  // namespace heddle
