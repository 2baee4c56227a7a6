#pragma once

#include <cstdint>
#include <memory>

#include "kernels/cpu/blocks.h"

/// Separate passes over f32 matrices in memory, each by all threads: what an unfused operation is made of.
namespace heddle::bench {

/// Memory of a pass's result; no page of it is touched before the pass.
class Intermediate {
 public:
  explicit Intermediate(std::int64_t n) : values_(new float[static_cast<std::size_t>(n)]) {}
  float* get() const { return values_.get(); }

 private:
  std::unique_ptr<float[]> values_;
};

/// Calls f(row) for each of `rows` rows of `width` elements.
template <typename Function>
void for_each_row(std::int64_t rows, std::int64_t width, const Function& f) {
  cpu::for_each_block(rows, cpu::rows_per_block(width), [&](std::int64_t begin, std::int64_t count) {
    for (std::int64_t row = begin; row < begin + count; ++row) f(row);
  });
}

/// y[i] = a[i] * b[i], y[i] = a[i] + b[i]
void multiply(std::int64_t n, const float* a, const float* b, float* y);
void add(std::int64_t n, const float* a, const float* b, float* y);
/// y[r,:] = x[r,:] * factor[r]
void multiply_rows(std::int64_t rows, std::int64_t width, const float* x, const float* factor, float* y);
/// y[r,:] = x[r,:] * factor[:]
void multiply_columns(std::int64_t rows, std::int64_t width, const float* x, const float* factor, float* y);
void sum_rows(std::int64_t rows, std::int64_t width, const float* x, float* sums);
void sum_columns(std::int64_t rows, std::int64_t width, const float* x, float* sums);

/// Of one row, by the calling thread: p = softmax(s) of the first `visible` elements, 0 behind them; returns the
/// logarithm of the sum of exponentials.
float softmax_of_row(const float* s, std::int64_t visible, std::int64_t n, float* p);
/// y = exp(x) of one row.
void exp_of_row(const float* x, std::int64_t n, float* y);

}  // namespace heddle::bench
