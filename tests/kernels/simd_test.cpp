#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "instruction_sets.h"
#include "math_sweep.h"

namespace heddle {
namespace {

using test::VectorFunction;

/// Floats of both signs, a few in every binade, neighbours of ties of the 16-bit types among them.
std::vector<float> sweep() {
  std::vector<float> list;
  for (std::uint64_t word = 0; word <= 0xffffffffu; word += 0x0fff7u) {
    list.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(word)));
  }
  for (std::uint32_t high = 0; high <= 0xffffu; ++high) {
    for (const std::uint32_t low : {0x0000u, 0x0fffu, 0x1000u, 0x1001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      list.push_back(std::bit_cast<float>(high << 16 | low));
    }
  }
  return list;
}

template <typename T>
void expect_conversions_as_base() {
  std::vector<T> all(65536);
  for (std::uint32_t i = 0; i < 65536; ++i) all[i].bits = static_cast<std::uint16_t>(i);
  const std::vector<float> floats = sweep();
  test::with_each_instruction_set([&](const char* name) {
    std::vector<float> wide(all.size());
    test::widen(static_cast<int>(all.size()), all.data(), wide.data());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto expected = static_cast<float>(all[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide[i])) << name << ", bits " << i;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(expected)) << name << ' ' << i;
      }
    }
    std::vector<T> narrow(floats.size());
    test::narrow(static_cast<int>(floats.size()), floats.data(), narrow.data());
    for (std::size_t i = 0; i < floats.size(); ++i) {
      if (std::isnan(floats[i])) {
        ASSERT_TRUE(std::isnan(static_cast<float>(narrow[i]))) << name;
      } else {
        ASSERT_EQ(narrow[i].bits, T(floats[i]).bits) << name << ", " << floats[i];
      }
    }
  });
}

TEST(Simd, ConvertsBFloat16AsTheScalarTypeDoes) { expect_conversions_as_base<BFloat16>(); }
TEST(Simd, ConvertsFloat16AsTheScalarTypeDoes) { expect_conversions_as_base<Float16>(); }

/// Largest error over [low, high] in units in the last place of the f32 result, against libm in double.
double largest_error(VectorFunction function, double (*exact)(double), float low, float high) {
  std::vector<float> x;
  for (const float value : sweep()) {
    if (value >= low && value <= high) x.push_back(value);
  }
  for (int i = 0; i <= 400000; ++i) x.push_back(low + (high - low) * static_cast<float>(i) / 400000.0f);
  std::vector<float> y(x.size());
  test::apply(function, static_cast<int>(x.size()), x.data(), y.data());
  double worst = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = exact(static_cast<double>(x[i]));
    const int exponent = std::max(std::ilogb(expected == 0.0 ? 1e-300 : expected), -126);
    const double unit = std::ldexp(1.0, exponent - 23);
    const double error = std::abs(static_cast<double>(y[i]) - expected) / unit;
    worst = std::max(worst, std::isnan(error) ? 1e30 : error);
  }
  return worst;
}

double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }
double logistic_slope(double x) { return std::exp(-std::abs(x)) / std::pow(1.0 + std::exp(-std::abs(x)), 2); }
double normal(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
double normal_density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::acos(-1.0)); }

TEST(VectorMath, StaysWithinItsStatedErrors) {
  test::with_each_instruction_set([](const char* name) {
    const auto expect = [&](VectorFunction function, double (*exact)(double), float low, float high, double bound) {
      const double worst = largest_error(function, exact, low, high);
      EXPECT_LE(worst, bound) << name << ", function " << static_cast<int>(function);
    };
    expect(
        VectorFunction::exp, [](double x) { return std::exp(x); }, -104.0f, 88.72f, 2.0);
    expect(
        VectorFunction::tanh, [](double x) { return std::tanh(x); }, -50.0f, 50.0f, 2.0);
    expect(VectorFunction::logistic, logistic, -104.0f, 104.0f, 3.0);
    expect(VectorFunction::logistic_slope, logistic_slope, -104.0f, 104.0f, 5.0);
    expect(VectorFunction::normal, normal, -14.0f, 14.0f, 5.0);
    expect(VectorFunction::normal_density, normal_density, -14.0f, 14.0f, 3.0);
  });
}

TEST(VectorMath, GoesToItsLimitsAndKeepsNaN) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float x[] = {-infinity, -1e30f, 1e30f, infinity, std::numeric_limits<float>::quiet_NaN()};
  const auto expect = [&](const char* name, VectorFunction function, float below, float above) {
    float y[5];
    test::apply(function, 5, x, y);
    EXPECT_EQ(y[0], below) << name;
    EXPECT_EQ(y[1], below) << name;
    EXPECT_EQ(y[2], above) << name;
    EXPECT_EQ(y[3], above) << name;
    EXPECT_TRUE(std::isnan(y[4])) << name << " function " << static_cast<int>(function) << " of NaN is " << y[4];
  };
  test::with_each_instruction_set([&](const char* name) {
    expect(name, VectorFunction::exp, 0.0f, infinity);
    expect(name, VectorFunction::tanh, -1.0f, 1.0f);
    expect(name, VectorFunction::logistic, 0.0f, 1.0f);
    expect(name, VectorFunction::logistic_slope, 0.0f, 0.0f);
    expect(name, VectorFunction::normal, 0.0f, 1.0f);
    expect(name, VectorFunction::normal_density, 0.0f, 0.0f);
  });
}

}  // namespace
}  // namespace heddle
