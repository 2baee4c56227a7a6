// sum_of_squares: y = sum of x_i^2 in f64; the squares of floats are exact there. The tensor is cut into at most 1024
// pieces that depend on its length alone, and their sums are added in order: threads change no bit.
// gradient_norm: norm and clipping factor from such sums, as torch.nn.utils.clip_grad_norm_ forms them.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gradient_norm.cpp"
#include <hwy/foreach_target.h>

#include <cmath>

#include "kernels/cpu/blocks.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

HWY_INLINE double sum_of_squares_of(const float* x, std::int64_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, hn::ScalableTag<double>> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto x0 = hn::PromoteTo(d, hn::LoadU(narrow, x + i));
    const auto x1 = hn::PromoteTo(d, hn::LoadU(narrow, x + i + lanes));
    const auto x2 = hn::PromoteTo(d, hn::LoadU(narrow, x + i + 2 * lanes));
    const auto x3 = hn::PromoteTo(d, hn::LoadU(narrow, x + i + 3 * lanes));
    sum0 = hn::MulAdd(x0, x0, sum0);
    sum1 = hn::MulAdd(x1, x1, sum1);
    sum2 = hn::MulAdd(x2, x2, sum2);
    sum3 = hn::MulAdd(x3, x3, sum3);
  }
  double sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  for (; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

void sum_of_squares(const KernelCall& call) {
  constexpr std::int64_t kPieces = 1024;
  const TensorView& x = call.in[0];
  const std::int64_t n = x.elements();
  const std::int64_t length = std::max(kElementsPerBlock, (n + kPieces - 1) / kPieces);
  double sums[kPieces] = {};
  for_each_block(n, length, [&](std::int64_t begin, std::int64_t count) HWY_ATTR {
    sums[begin / length] = sum_of_squares_of(x.as<const float>() + begin, count);
  });
  double total = 0.0;
  for (std::int64_t piece = 0; piece * length < n; ++piece) total += sums[piece];
  *call.out[0].as<double>() = total;
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(sum_of_squares);

void sum_of_squares(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(sum_of_squares)(call); }

void gradient_norm(const KernelCall& call) {
  const TensorView& sums = call.in[0];
  const double inverse_loss_scale = call.scalars.inverse_loss_scale;
  const double limit = call.scalars.max_grad_norm;
  double sum = 0.0;
  for (std::int64_t i = 0; i < sums.elements(); ++i) sum += sums.as<const double>()[i];
  const double norm = std::sqrt(sum) * inverse_loss_scale;
  double factor = inverse_loss_scale;
  if (limit != 0.0) {
    const double ratio = limit / (norm + 1e-6);
    if (!(ratio >= 1.0)) factor *= ratio;  // NaN goes through
  }
  *call.out[0].as<double>() = norm;
  *call.out[1].as<float>() = static_cast<float>(factor);
}

}  // namespace heddle::cpu
#endif
