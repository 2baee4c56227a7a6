#include "passes.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "../bench/fused/passes.cpp"  // from src/
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// y = a * b, or a + b.
void combine(bool multiply, std::int64_t n, const float* a, const float* b, float* y) {
  for_each_block(n, kElementsPerBlock, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
    const float *a_block = a + begin, *b_block = b + begin;
    if (multiply) {
      cpu::HWY_NAMESPACE::map(count, a_block, b_block, y + begin,
                              [](FloatTag, FloatVector u, FloatVector v) HWY_ATTR { return hn::Mul(u, v); });
    } else {
      cpu::HWY_NAMESPACE::map(count, a_block, b_block, y + begin,
                              [](FloatTag, FloatVector u, FloatVector v) HWY_ATTR { return hn::Add(u, v); });
    }
  });
}

float sum_of_row(const float* x, std::int64_t n) {
  const FloatTag d;
  auto sum = hn::Zero(d);
  for_each_vector(n, [&](std::int64_t i, auto part) HWY_ATTR { sum = hn::Add(sum, load(d, x + i, part)); });
  return sum_lanes(d, sum);
}

/// p = softmax(s) of the first `visible` elements of a row, 0 behind them; returns log of the sum of exponentials.
float softmax_of_row(const float* s, std::int64_t visible, std::int64_t n, float* p) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto maximum = hn::Set(d, s[0]);
  std::int64_t whole = 0;
  for (; whole + lanes <= visible; whole += lanes) maximum = hn::Max(maximum, hn::LoadU(d, s + whole));
  float greatest = hn::GetLane(hn::MaxOfLanes(d, maximum));
  for (; whole < visible; ++whole) greatest = std::max(greatest, s[whole]);
  cpu::HWY_NAMESPACE::map(visible, s, p, [&](FloatTag, FloatVector v) HWY_ATTR {
    return cpu::HWY_NAMESPACE::exp(d, hn::Sub(v, hn::Set(d, greatest)));
  });
  const float sum = sum_of_row(p, visible);
  cpu::HWY_NAMESPACE::map(visible, p, p,
                          [&](FloatTag, FloatVector v) HWY_ATTR { return hn::Mul(v, hn::Set(d, 1.0f / sum)); });
  std::fill(p + visible, p + n, 0.0f);
  return greatest + std::log(sum);
}

/// y = exp(x)
void exp_of_row(const float* x, std::int64_t n, float* y) {
  cpu::HWY_NAMESPACE::map(n, x, y, [](FloatTag d, FloatVector v) HWY_ATTR { return cpu::HWY_NAMESPACE::exp(d, v); });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::cpu {
HWY_EXPORT(combine);
HWY_EXPORT(sum_of_row);
HWY_EXPORT(softmax_of_row);
HWY_EXPORT(exp_of_row);
}  // namespace heddle::cpu

namespace heddle::bench {

void multiply(std::int64_t n, const float* a, const float* b, float* y) {
  HWY_DYNAMIC_DISPATCH(cpu::combine)(true, n, a, b, y);
}

void add(std::int64_t n, const float* a, const float* b, float* y) {
  HWY_DYNAMIC_DISPATCH(cpu::combine)(false, n, a, b, y);
}

void multiply_rows(std::int64_t rows, std::int64_t width, const float* x, const float* factor, float* y) {
  for_each_row(rows, width, [&](std::int64_t r) {
    for (std::int64_t c = r * width; c < (r + 1) * width; ++c) y[c] = x[c] * factor[r];
  });
}

void multiply_columns(std::int64_t rows, std::int64_t width, const float* x, const float* factor, float* y) {
  for_each_row(rows, width, [&](std::int64_t r) {
    for (std::int64_t c = 0; c < width; ++c) y[r * width + c] = x[r * width + c] * factor[c];
  });
}

void sum_rows(std::int64_t rows, std::int64_t width, const float* x, float* sums) {
  for_each_row(rows, width,
               [&](std::int64_t r) { sums[r] = HWY_DYNAMIC_DISPATCH(cpu::sum_of_row)(x + r * width, width); });
}

void sum_columns(std::int64_t rows, std::int64_t width, const float* x, float* sums) {
  cpu::for_each_block(width, 128, [&](std::int64_t begin, std::int64_t count) {
    std::fill(sums + begin, sums + begin + count, 0.0f);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = begin; c < begin + count; ++c) sums[c] += x[r * width + c];
    }
  });
}

float softmax_of_row(const float* s, std::int64_t visible, std::int64_t n, float* p) {
  return HWY_DYNAMIC_DISPATCH(cpu::softmax_of_row)(s, visible, n, p);
}

void exp_of_row(const float* x, std::int64_t n, float* y) { HWY_DYNAMIC_DISPATCH(cpu::exp_of_row)(x, n, y); }

}  // namespace heddle::bench

#endif
