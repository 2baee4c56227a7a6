// Adafactor  (Shazeer, Stern 2018, arXiv:1804.04235), as transformers.optimization.Adafactor computes it without first
// moment, relative step and scaled parameters; beta = 1 - update^decay_rate:
//   u = g g + 1e-30;  R = beta R + (1 - beta) mean of u over columns;  C = beta C + (1 - beta) mean of u over rows
//   d = g / (sqrt(R / mean R) sqrt(C)), of a vector d = g / sqrt(V) with V = beta V + (1 - beta) u
//   direction = d / max(1, rms(d) / clip_threshold)
// g [..., rows, columns] is a whole tensor; leading axes are matrices of their own, but for rms. The direction may take
// its place. Sums are f64, in one order whatever the number of threads: over a row in the order of columns, over a
// column in the order of rows.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/adafactor.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/row_sum-inl.h"
#include "kernels/cpu/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

constexpr float kLeastSquare = 1e-30f;

/// Sum of (factor x)^2 + least in f64.
HWY_INLINE double sum_of_squares_in(const float* x, std::int64_t n, double factor, double least) {
  return sum_of_squares_of(n, x) * factor * factor + static_cast<double>(n) * least;
}

/// The direction before clipping of one row, in place of its factors' product, and the sum of its squares.
HWY_INLINE double scale_row(const float* g, const float* column_factor, std::int64_t n, float row_factor,
                            float* direction) {
  const FloatTag d;
  for_each_vector(n, [&](std::int64_t i, auto part) HWY_ATTR {
    const auto scale = hn::Mul(hn::Set(d, row_factor), load(d, column_factor + i, part));
    store(hn::Mul(scale, load(d, g + i, part)), d, direction + i, part);
  });
  return sum_of_squares_in(direction, n, 1.0, 0.0);
}

void scale_by(float* x, std::int64_t n, float factor) {
  for_each_block(n, kElementsPerBlock, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
    map(count, x + begin, x + begin,
        [&](FloatTag d, FloatVector value) HWY_ATTR { return hn::Mul(value, hn::Set(d, factor)); });
  });
}

/// 1 / max(1, rms / clip_threshold)
float clipping(const KernelCall& call, double sum) {
  const double rms = std::sqrt(sum / static_cast<double>(call.in[0].elements()));
  return static_cast<float>(1.0 / std::max(1.0, rms / call.attributes.real("clip_threshold", 1.0)));
}

struct Decay {
  float kept, taken;
};

/// One matrix; returns the sum of its direction's squares.
double factor_matrix(const KernelCall& call, std::int64_t index, Decay decay) {
  const Shape& shape = call.in[0].shape;
  const std::int64_t columns = shape.back(), rows = shape[shape.rank() - 2];
  const float* g = call.in[0].as<const float>() + index * rows * columns;
  float* direction = call.out[0].as<float>() + index * rows * columns;
  float *row_state = call.out[1].as<float>() + index * rows, *column_state = call.out[2].as<float>() + index * columns;
  auto* row_sums = call.out[4].as<double>();
  auto* column_factor = reinterpret_cast<float*>(row_sums + rows);
  const float factor = gradient_factor(call);
  for_each_block(rows, rows_per_block(columns), [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
    for (std::int64_t r = begin; r < begin + count; ++r) {
      const double mean =
          sum_of_squares_in(g + r * columns, columns, factor, kLeastSquare) / static_cast<double>(columns);
      row_state[r] = row_state[r] * decay.kept + static_cast<float>(mean) * decay.taken;
    }
  });
  double row_mean = 0.0;
  for (std::int64_t r = 0; r < rows; ++r) row_mean += static_cast<double>(row_state[r]);
  row_mean /= static_cast<double>(rows);
  constexpr std::int64_t kColumns = 64;
  for_each_block(columns, kColumns, [&](std::int64_t begin, std::int64_t count) {
    std::array<double, kColumns> sums{};
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* row = g + r * columns + begin;
      for (std::int64_t i = 0; i < count; ++i)
        sums[static_cast<std::size_t>(i)] += static_cast<double>(row[i]) * static_cast<double>(row[i]);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const double mean = sums[static_cast<std::size_t>(i)] / static_cast<double>(rows) * static_cast<double>(factor) *
                              static_cast<double>(factor) +
                          static_cast<double>(kLeastSquare);
      float& state = column_state[begin + i];
      state = state * decay.kept + static_cast<float>(mean) * decay.taken;
      column_factor[begin + i] = 1.0f / std::sqrt(state) * factor;
    }
  });
  for_each_block(rows, rows_per_block(columns), [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
    for (std::int64_t r = begin; r < begin + count; ++r) {
      const float row_factor = 1.0f / std::sqrt(row_state[r] / static_cast<float>(row_mean));
      row_sums[r] = scale_row(g + r * columns, column_factor, columns, row_factor, direction + r * columns);
    }
  });
  double total = 0.0;
  for (std::int64_t r = 0; r < rows; ++r) total += row_sums[r];
  return total;
}

/// A vector, of which there are few: one block after another.
double scale_vector(const KernelCall& call, Decay decay) {
  const auto* g = call.in[0].as<const float>();
  auto *direction = call.out[0].as<float>(), *state = call.out[3].as<float>();
  const float factor = gradient_factor(call);
  double total = 0.0;
  for (std::int64_t i = 0; i < call.in[0].elements(); ++i) {
    const float scaled = g[i] * factor, square = scaled * scaled + kLeastSquare;
    state[i] = state[i] * decay.kept + square * decay.taken;
    direction[i] = scaled / std::sqrt(state[i]);
    total += static_cast<double>(direction[i]) * static_cast<double>(direction[i]);
  }
  return total;
}

void adafactor(const KernelCall& call) {
  const Shape& shape = call.in[0].shape;
  const double beta = 1.0 - std::pow(static_cast<double>(call.scalars.update), call.attributes.real("decay_rate"));
  const Decay decay{static_cast<float>(beta), static_cast<float>(1.0 - beta)};
  double total = 0.0;
  if (shape.rank() < 2) {
    total = scale_vector(call, decay);
  } else {
    const std::int64_t matrices = shape.elements() / (shape[shape.rank() - 2] * shape.back());
    for (std::int64_t m = 0; m < matrices; ++m) total += factor_matrix(call, m, decay);
  }
  const float factor = clipping(call, total);
  if (factor != 1.0f) scale_by(call.out[0].as<float>(), shape.elements(), factor);
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(adafactor);

void adafactor(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(adafactor)(call); }

}  // namespace heddle::cpu
#endif
