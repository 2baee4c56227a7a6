// Muon  (Jordan et al. 2024, kellerjordan.github.io/posts/muon), as torch.optim.Muon computes it, but in f32 where that
// rounds to bf16.
// muon_momentum: b += (1 - momentum) (g - b);  direction = g + momentum (b - g) with nesterov, else b. The direction
// may take the gradient's place. newton_schulz: X = x / max(|x|, 1e-7), then `steps` times X = (a I + b A + c A A) X
// with A = X Xᵀ; on the shorter side: X (a I + b A + c A A) with A = Xᵀ X where x has more rows than columns. y may be
// x. Every sum has one order, whatever the number of threads.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/muon.cpp"
#include <hwy/foreach_target.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/update-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// torch.lerp from `from` by `weight` to `to`.
HWY_INLINE FloatVector lerp(FloatTag d, FloatVector from, FloatVector to, float weight) {
  const auto difference = hn::Sub(to, from);
  if (std::fabs(weight) < 0.5f) return hn::Add(from, hn::Mul(hn::Set(d, weight), difference));
  return hn::Sub(to, hn::Mul(difference, hn::Set(d, 1.0f - weight)));
}

void muon_momentum(const KernelCall& call) {
  const float factor = gradient_factor(call);
  const double momentum = call.attributes.real("momentum");
  const auto weight = static_cast<float>(1.0 - momentum), look_ahead = static_cast<float>(momentum);
  const bool is_nesterov = call.attributes.integer("nesterov") != 0;
  for_each_block(call.in[0].elements(), kElementsPerBlock, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
    const FloatTag d;
    const float* gradient = call.in[0].as<const float>() + begin;
    float *direction = call.out[0].as<float>() + begin, *buffer = call.out[1].as<float>() + begin;
    for_each_vector(count, [&](std::int64_t i, auto part) HWY_ATTR {
      const auto g = hn::Mul(load(d, gradient + i, part), hn::Set(d, factor));
      const auto b = lerp(d, load(d, buffer + i, part), g, weight);
      store(b, d, buffer + i, part);
      store(is_nesterov ? lerp(d, g, b, look_ahead) : b, d, direction + i, part);
    });
  });
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
namespace {

HWY_EXPORT(muon_momentum);

constexpr float kA = 3.4445f, kB = -4.7750f, kC = 2.0315f;  // torch.optim.Muon's defaults, Jordan's
constexpr double kLeastNorm = 1e-7;

/// Of blocks, added up in their order.
double norm_of(const float* x, std::int64_t n, double* sums) {
  for_each_block(n, kElementsPerBlock, [&](std::int64_t begin, std::int64_t count) {
    double sum = 0.0;
    for (std::int64_t i = begin; i < begin + count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    sums[begin / kElementsPerBlock] = sum;
  });
  double total = 0.0;
  for (std::int64_t begin = 0; begin < n; begin += kElementsPerBlock) total += sums[begin / kElementsPerBlock];
  return std::sqrt(total);
}

}  // namespace

void muon_momentum(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(muon_momentum)(call); }

void newton_schulz(const KernelCall& call) {
  const TensorView& x = call.in[0];
  const std::int64_t rows = x.shape.rows(), columns = x.shape.back(), least = std::min(rows, columns);
  const std::int64_t elements = rows * columns;
  HEDDLE_CHECK(call.out[1].elements() >= elements + 2 * least * least);
  float* gram = call.out[1].as<float>();  // [least, least]
  float* polynomial = gram + least * least;
  float* next = polynomial + least * least;
  float* current = call.out[0].as<float>();
  // The workspace has room for a sum of each block: 2 floats of 3 at least, before anything else is there.
  const double norm = norm_of(x.as<const float>(), elements, call.out[1].as<double>());
  const auto scale = static_cast<float>(std::max(norm, kLeastNorm));
  for_each_block(elements, kElementsPerBlock, [&](std::int64_t begin, std::int64_t count) {
    for (std::int64_t i = begin; i < begin + count; ++i) current[i] = x.as<const float>()[i] / scale;
  });
  for (std::int64_t step = call.attributes.integer("steps"); step > 0; --step) {
    const auto matrix = row_major(current, DType::f32, columns), square = row_major(polynomial, DType::f32, least);
    const auto as_gram = row_major(gram, DType::f32, least);
    if (rows <= columns) {
      matmul(dense_product(least, least, columns, matrix, transposed(matrix), gram), call.scratch);
    } else {
      matmul(dense_product(least, least, rows, transposed(matrix), matrix, gram), call.scratch);
    }
    matmul(dense_product(least, least, least, as_gram, as_gram, polynomial), call.scratch);
    parallel_for(least, [&](std::int64_t row, int) {
      for (std::int64_t i = row * least; i < (row + 1) * least; ++i) polynomial[i] = kC * polynomial[i] + kB * gram[i];
      polynomial[row * least + row] += kA;
    });
    if (rows <= columns) {
      matmul(dense_product(rows, columns, least, square, matrix, next), call.scratch);
    } else {
      matmul(dense_product(rows, columns, least, matrix, square, next), call.scratch);
    }
    std::swap(current, next);
  }
  auto* y = call.out[0].as<float>();
  if (current == y) return;
  for_each_block(elements, kElementsPerBlock,
                 [&](std::int64_t begin, std::int64_t count) { std::copy_n(current + begin, count, y + begin); });
}

}  // namespace heddle::cpu
#endif
