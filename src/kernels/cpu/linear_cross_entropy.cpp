// The last projection and the cross entropy in one, a chunk of tokens at a time, so that logits [T,V] never exist:
//   l = x W^T    z = c tanh(s l / c), or s l without softcap    L = log sum_j exp z_j
//   loss = sum of (L - (1-e) z_label - e mean_j z_j + w L^2)
//   d = g ((1 + 2 w L) softmax(z) - (1-e) onehot - e/V) (1 - (z/c)^2) s    dx = d W    dW (+)= d^T x
// with s logit_scale, c softcap, e label_smoothing, w z_loss and g gradient_scale; x [T,H], W [V,H] (transposed:
// [H,V]). Without smoothing and z-loss: L - z_label, and softmax(z) - onehot. Logits and d are f32 in the workspace
// [chunk,V], the second in place of the first; with x in bf16 the products take W and d rounded to that. Rows with
// label -100 have no loss and zero d. loss and dx are overwritten (dx may be absent); dW as the call says. An adapter's
// branch x2 [T,r], W2 [V,r] adds x2 W2^T to l and has dx2 = d W2 and dW2 (+)= d^T x2; with DoRA l is then multiplied by
// m / norms; rows of its own stand in W for those of their ids and take their part of dW. T*H*V multiply-adds for the
// loss, three times that with gradients.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/logit_rows.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_cross_entropy.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/row_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace {

/// Replaces logits l by z and returns the greatest.
float transform_logits(const LogitRow& row) {
  const FloatTag d;
  const auto scale = hn::Set(d, row.scale);
  const auto cap = hn::Set(d, row.cap);
  const auto scale_by_cap = hn::Set(d, row.cap == 0.0f ? 0.0f : row.scale / row.cap);
  auto greatest = hn::Set(d, -HUGE_VALF);
  const auto transform = [&](FloatTag, FloatVector l) HWY_ATTR {
    return row.cap == 0.0f ? hn::Mul(l, scale) : hn::Mul(tanh(d, hn::Mul(l, scale_by_cap)), cap);
  };
  if (row.cap != 0.0f || row.scale != 1.0f) map(row.vocabulary, row.values, row.values, transform);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t j = 0;
  for (; j + lanes <= row.vocabulary; j += lanes) greatest = hn::Max(greatest, hn::LoadU(d, row.values + j));
  float result = hn::GetLane(hn::MaxOfLanes(d, greatest));
  for (; j < row.vocabulary; ++j) result = std::max(result, row.values[j]);
  return result;
}

/// Sum of exp(z - greatest), added up in double. Any NaN or +infinity among z makes it NaN. `replaces` leaves the
/// exponentials in place of z, so that the gradient need not compute them again.
double sum_of_exponentials(const LogitRow& row, float greatest, bool replaces) {
  const FloatTag d;
  const auto shift = hn::Set(d, greatest);
  const auto add = [](auto value, auto part) HWY_ATTR { return hn::Add(part, value); };
  RowSum<double> sum;
  constexpr std::int64_t kParts = RowSum<double>::kParts;
  for (std::int64_t j = 0; j < row.vocabulary; j += kParts) {
    HWY_ALIGN float terms[kParts];
    const std::int64_t count = std::min(kParts, row.vocabulary - j);
    for_each_vector(count, [&](std::int64_t i, auto part) HWY_ATTR {
      const auto e = exp(d, hn::Sub(load(d, row.values + j + i, part), shift));
      if (replaces) store(e, d, row.values + j + i, part);
      hn::StoreU(e, d, terms + i);
    });
    std::fill(terms + count, terms + kParts, 0.0f);
    add_terms(terms, sum, add);
  }
  return sum.total();
}

/// Mean of z, added up in double.
double mean_logit(const LogitRow& row) {
  const double sum =
      sum_in_double(row.vocabulary, row.values, [](auto value, auto part) HWY_ATTR { return hn::Add(part, value); });
  return sum / static_cast<double>(row.vocabulary);
}

/// Replaces the exponentials, or with a cap z, by the gradient with respect to l.
void differentiate_row(const LogitRow& row, float greatest, double sum, double z_label, double log_sum) {
  const FloatTag d;
  const double outer = static_cast<double>(row.gradient_scale) * static_cast<double>(row.scale);
  const double of_sum = 1.0 + 2.0 * row.z_loss * log_sum;
  const double of_each = row.smoothing / static_cast<double>(row.vocabulary);
  const double p_label = std::exp(z_label - static_cast<double>(greatest)) / sum;
  const auto factor = hn::Set(d, static_cast<float>(outer * of_sum / sum));
  const auto even = hn::Set(d, static_cast<float>(outer * of_each));
  double slope = 1.0;
  if (row.cap == 0.0f) {
    map(row.vocabulary, row.values, row.values,
        [&](FloatTag, FloatVector e) HWY_ATTR { return hn::Sub(hn::Mul(e, factor), even); });
  } else {
    const auto shift = hn::Set(d, greatest), one = hn::Set(d, 1.0f);
    const auto inverse_cap = hn::Set(d, 1.0f / row.cap);
    map(row.vocabulary, row.values, row.values, [&](FloatTag, FloatVector z) HWY_ATTR {
      const auto t = hn::Mul(z, inverse_cap);
      const auto of_z = hn::Sub(hn::Mul(exp(d, hn::Sub(z, shift)), factor), even);
      return hn::Mul(of_z, hn::NegMulAdd(t, t, one));
    });
    const double t = z_label / static_cast<double>(row.cap);
    slope = 1.0 - t * t;
  }
  const double of_label = p_label * of_sum - (1.0 - row.smoothing) - of_each;
  row.values[row.label] = static_cast<float>(of_label * outer * slope);
}

}  // namespace

double cross_entropy_row(const LogitRow& row) {
  const float greatest = transform_logits(row);
  const auto z_label = static_cast<double>(row.values[row.label]);
  const double smoothed = row.smoothing == 0.0 ? 0.0 : row.smoothing * mean_logit(row);
  const double sum = sum_of_exponentials(row, greatest, row.with_gradient && row.cap == 0.0f);
  const double log_sum = std::log(sum) + static_cast<double>(greatest);
  if (row.with_gradient) differentiate_row(row, greatest, sum, z_label, log_sum);
  return log_sum - (1.0 - row.smoothing) * z_label - smoothed + row.z_loss * log_sum * log_sum;
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
HWY_EXPORT(cross_entropy_row);

double cross_entropy_of(const LogitRow& row) { return HWY_DYNAMIC_DISPATCH(cross_entropy_row)(row); }

namespace {

Head head_of(const KernelCall& call, const TensorView& workspace) {
  Head head(call, workspace);
  head.set_adapter(call, 3);
  return head;
}

/// Logits of a chunk, or their gradients, in head.logits. Losses of its rows are added to `total` in token order, so
/// that the sum does not depend on the chunk.
void cross_entropy_of_chunk(const Head& head, std::int64_t begin, std::int64_t count, double& total) {
  make_logits(head, begin, count);
  auto* losses = reinterpret_cast<double*>(head.scratch.shared);  // free between products
  const auto cross_entropy_of_row = HWY_DYNAMIC_DISPATCH(cross_entropy_row);
  parallel_for(count, [&](std::int64_t i, int) {
    LogitRow row = head.row;
    row.values = head.logits + i * head.vocabulary;
    row.label = head.labels[begin + i];
    losses[i] = 0.0;
    if (row.label != kIgnoredLabel) {
      losses[i] = cross_entropy_of_row(row);
    } else if (row.with_gradient) {
      std::fill_n(row.values, head.vocabulary, 0.0f);
    }
  });
  for (std::int64_t i = 0; i < count; ++i) total += losses[i];
}

}  // namespace

void linear_cross_entropy(const KernelCall& call) {
  const Head head = head_of(call, call.out[1]);
  double total = 0.0;
  for (std::int64_t begin = 0; begin < head.tokens; begin += head.chunk) {
    const std::int64_t count = std::min(head.chunk, head.tokens - begin);
    if (any_supervised(head, begin, count)) cross_entropy_of_chunk(head, begin, count, total);
  }
  *call.out[0].as<double>() = total;
}

void linear_cross_entropy_gradient(const KernelCall& call) {
  Head head = head_of(call, call.out[3]);
  head.row.with_gradient = true;
  HeadGradients gradients(call, call.out[1], call.out[2], 4);
  double total = 0.0;
  for (std::int64_t begin = 0; begin < head.tokens; begin += head.chunk) {
    const std::int64_t count = std::min(head.chunk, head.tokens - begin);
    if (any_supervised(head, begin, count)) {
      cross_entropy_of_chunk(head, begin, count, total);
      gradients.write(head, begin, count);
    } else {
      gradients.skip(begin, count);
    }
  }
  gradients.finish();
  *call.out[0].as<double>() = total;
}

}  // namespace heddle::cpu
#endif
