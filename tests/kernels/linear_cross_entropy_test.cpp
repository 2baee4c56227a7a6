#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/cpu/kernels.h"
#include "product_operands.h"

namespace heddle {
namespace {

using test::random_tensor;
using test::run_kernel;
using test::Tensor;
using test::ThreadsScope;

constexpr std::int32_t kIgnored = -100;

struct Setting {
  std::int64_t tokens = 11, hidden = 24, vocabulary = 67;
  DType dtype = DType::f32;
  bool transposed = false;
  double softcap = 0.0, logit_scale = 1.0;
  std::int64_t chunk = 4;
  float gradient_scale = 0.25f;
  double weight_range = 1.0;
  Accumulate accumulate = Accumulate::overwrite;
  bool first_micro_batch = true;
};

/// Operands and results of one setting.
struct Problem {
  explicit Problem(const Setting& s) : setting(s) {
    x = random_tensor(s.dtype, {s.tokens, s.hidden}, 1);
    const Shape shape = s.transposed ? Shape{s.hidden, s.vocabulary} : Shape{s.vocabulary, s.hidden};
    weight = random_tensor(s.dtype, shape, 2);
    auto scaled = weight.values();
    for (double& value : scaled) value *= s.weight_range;
    weight.set(scaled);
    labels = Tensor(DType::i32, {s.tokens});
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      label(t) = t % 3 == 1 ? kIgnored : static_cast<std::int32_t>(t * 31 % s.vocabulary);
    }
    loss = Tensor(DType::f64, {1});
    dx = random_tensor(s.dtype, x.shape, 5);
    dweight = random_tensor(DType::f32, weight.shape, 6);
    workspace = Tensor(DType::f32, {s.chunk, s.vocabulary});
  }

  std::int32_t& label(std::int64_t t) { return labels.view().as<std::int32_t>()[t]; }
  double& loss_value() { return *loss.view().as<double>(); }

  Attributes attributes() const {
    return {{"chunk", setting.chunk},
            {"transposed", std::int64_t{setting.transposed}},
            {"softcap", setting.softcap},
            {"logit_scale", setting.logit_scale},
            {"accumulate", static_cast<std::int64_t>(setting.accumulate)}};
  }
  Scalars scalars() const {
    Scalars result;
    result.gradient_scale = setting.gradient_scale;
    result.first_micro_batch = setting.first_micro_batch;
    return result;
  }
  void run_loss() {
    run_kernel(cpu::linear_cross_entropy, {x.view(), weight.view(), labels.view()}, {loss.view(), workspace.view()},
               attributes(), scalars());
  }
  void run_gradient() {
    run_kernel(cpu::linear_cross_entropy_gradient, {x.view(), weight.view(), labels.view()},
               {loss.view(), dx.view(), dweight.view(), workspace.view()}, attributes(), scalars());
  }

  Setting setting;
  Tensor x, weight, labels, loss, dx, dweight, workspace;
};

std::size_t weight_index(const Setting& s, std::int64_t v, std::int64_t h) {
  return static_cast<std::size_t>(s.transposed ? h * s.vocabulary + v : v * s.hidden + h);
}

/// Scaled and capped logits of a token by plain loops in double.
std::vector<double> reference_logits(const Setting& s, const std::vector<double>& xs, const std::vector<double>& ws,
                                     std::int64_t t) {
  std::vector<double> z(static_cast<std::size_t>(s.vocabulary));
  for (std::int64_t v = 0; v < s.vocabulary; ++v) {
    double l = 0.0;
    for (std::int64_t h = 0; h < s.hidden; ++h) {
      l += xs[static_cast<std::size_t>(t * s.hidden + h)] * ws[weight_index(s, v, h)];
    }
    l *= s.logit_scale;
    z[static_cast<std::size_t>(v)] = s.softcap == 0.0 ? l : s.softcap * std::tanh(l / s.softcap);
  }
  return z;
}

double log_sum_exp(const std::vector<double>& z) {
  const double greatest = *std::max_element(z.begin(), z.end());
  double sum = 0.0;
  for (const double value : z) sum += std::exp(value - greatest);
  return std::log(sum) + greatest;
}

/// The sum of losses, of given x and weight.
double reference_loss(Problem& p, const std::vector<double>& xs, const std::vector<double>& ws) {
  double total = 0.0;
  for (std::int64_t t = 0; t < p.setting.tokens; ++t) {
    if (p.label(t) == kIgnored) continue;
    const auto z = reference_logits(p.setting, xs, ws, t);
    total += log_sum_exp(z) - z[static_cast<std::size_t>(p.label(t))];
  }
  return total;
}

double reference_loss(Problem& p) { return reference_loss(p, p.x.values(), p.weight.values()); }

/// Central differences of the reference; their error is about 1e-9 here (third derivatives of order 1, step 1e-5 at
/// values of order 1 in double).
std::vector<double> difference_quotients(Problem& p, bool of_weight) {
  auto xs = p.x.values(), ws = p.weight.values();
  auto& varied = of_weight ? ws : xs;
  std::vector<double> result(varied.size());
  constexpr double kStep = 1e-5;
  for (std::size_t i = 0; i < varied.size(); ++i) {
    const double before = varied[i];
    varied[i] = before + kStep;
    const double above = reference_loss(p, xs, ws);
    varied[i] = before - kStep;
    const double below = reference_loss(p, xs, ws);
    varied[i] = before;
    result[i] = (above - below) / (2.0 * kStep) * static_cast<double>(p.setting.gradient_scale);
  }
  return result;
}

/// With activations in bf16 the gradient d of the logits is rounded to that: at most 2^-8 sum |d| |w| of dx and
/// 2^-8 sum |d| |x| of dW; zeros in other types.
struct RoundingOfLogitGradients {
  explicit RoundingOfLogitGradients(Problem& p)
      : dx(static_cast<std::size_t>(p.x.shape.elements())),
        dweight(static_cast<std::size_t>(p.weight.shape.elements())) {
    const Setting& s = p.setting;
    if (s.dtype != DType::bf16) return;
    const auto xs = p.x.values(), ws = p.weight.values();
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      if (p.label(t) == kIgnored) continue;
      const auto z = reference_logits(s, xs, ws, t);
      const double log_sum = log_sum_exp(z);
      for (std::int64_t v = 0; v < s.vocabulary; ++v) {
        const double logit = z[static_cast<std::size_t>(v)];
        const double slope = s.softcap == 0.0 ? 1.0 : 1.0 - logit * logit / (s.softcap * s.softcap);
        const double d = static_cast<double>(s.gradient_scale) * s.logit_scale * slope *
                         (std::exp(logit - log_sum) - (v == p.label(t) ? 1.0 : 0.0));
        for (std::int64_t h = 0; h < s.hidden; ++h) {
          const auto x = static_cast<std::size_t>(t * s.hidden + h), w = weight_index(s, v, h);
          dx[x] += 0x1p-8 * std::abs(d * ws[w]);
          dweight[w] += 0x1p-8 * std::abs(d * xs[x]);
        }
      }
    }
  }
  std::vector<double> dx, dweight;
};

/// Settings in which everything differs once.
std::vector<Setting> settings() {
  std::vector<Setting> result;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const bool transposed : {false, true}) {
      for (const auto& [softcap, scale] : {std::pair{0.0, 1.0}, {0.0, 0.5}, {3.0, 1.0}, {2.0, 1.5}}) {
        Setting s;
        s.dtype = dtype;
        s.transposed = transposed;
        s.softcap = softcap;
        s.logit_scale = scale;
        result.push_back(s);
      }
    }
  }
  return result;
}

TEST(LinearCrossEntropy, LossAgreesWithDouble) {
  for (const Setting& s : settings()) {
    Problem p(s);
    p.run_loss();
    const double expected = reference_loss(p);
    EXPECT_NEAR(p.loss_value(), expected, 1e-7 * std::abs(expected));
  }
}

TEST(LinearCrossEntropy, LossOfUniformLogitsIsTheLogarithmOfTheVocabulary) {
  for (const std::int64_t vocabulary : {1, 2, 7, 1000, 50257}) {
    Setting s;
    s.vocabulary = vocabulary;
    s.weight_range = 0.0;
    Problem p(s);
    p.run_loss();
    EXPECT_NEAR(p.loss_value(), 7.0 * std::log(static_cast<double>(vocabulary)), 1e-12);  // 7 of 11 are supervised
  }
}

TEST(LinearCrossEntropy, LargeLogitsDoNotOverflow) {
  Setting s;
  s.weight_range = 1000.0;
  Problem p(s);
  p.run_gradient();
  const double expected = reference_loss(p);
  EXPECT_NEAR(p.loss_value(), expected, 1e-6 * expected);
  for (const double value : p.dx.values()) ASSERT_TRUE(std::isfinite(value));
  for (const double value : p.dweight.values()) ASSERT_TRUE(std::isfinite(value));
}

TEST(LinearCrossEntropyGradient, AgreesWithFiniteDifferences) {
  for (const Setting& s : settings()) {
    Problem p(s);
    p.run_gradient();
    EXPECT_NEAR(p.loss_value(), reference_loss(p), 1e-7 * p.loss_value());
    const auto dx_expected = difference_quotients(p, false), dweight_expected = difference_quotients(p, true);
    const auto dx = p.dx.values(), dweight = p.dweight.values();
    // f32 rounding of sums of up to 67 terms of order gradient_scale, and that of dx to its type.
    const RoundingOfLogitGradients rounding(p);
    for (std::size_t i = 0; i < dx.size(); ++i) {
      const double bound = 1e-6 + rounding.dx[i];
      ASSERT_NEAR(dx[i], dx_expected[i], bound + test::rounding_error(s.dtype, std::abs(dx_expected[i]) + bound)) << i;
    }
    for (std::size_t i = 0; i < dweight.size(); ++i) {
      ASSERT_NEAR(dweight[i], dweight_expected[i], 1e-6 + rounding.dweight[i]) << i;
    }
  }
}

TEST(LinearCrossEntropyGradient, ChunkShowsNeitherInLossNorInDx) {
  std::vector<std::byte> loss, dx;
  std::vector<double> dweight;
  for (const std::int64_t chunk : {1, 7, 11, 64}) {
    Setting s;
    s.chunk = chunk;
    s.dtype = DType::bf16;
    Problem p(s);
    p.run_gradient();
    if (loss.empty()) {
      loss = p.loss.bytes;
      dx = p.dx.bytes;
      dweight = p.dweight.values();
    }
    EXPECT_EQ(p.loss.bytes, loss);
    EXPECT_EQ(p.dx.bytes, dx);
    // The sum over tokens is made chunk by chunk: f32 rounding of 11 terms below 1.
    const auto values = p.dweight.values();
    for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], dweight[i], 11 * 0x1p-24);
    p.run_loss();
    EXPECT_EQ(p.loss.bytes, loss);
  }
}

TEST(LinearCrossEntropyGradient, IgnoredRowsAreZero) {
  Problem p(Setting{});
  p.run_gradient();
  const auto dx = p.dx.values();
  for (std::int64_t t = 0; t < p.setting.tokens; ++t) {
    const bool all_zero = std::all_of(dx.begin() + t * p.setting.hidden, dx.begin() + (t + 1) * p.setting.hidden,
                                      [](double value) { return value == 0.0; });
    EXPECT_EQ(all_zero, p.label(t) == kIgnored) << t;
  }
}

TEST(LinearCrossEntropyGradient, NothingSupervisedStillOverwrites) {
  for (const bool add : {false, true}) {
    Setting s;
    s.accumulate = add ? Accumulate::add : Accumulate::overwrite;
    Problem p(s);
    for (std::int64_t t = 0; t < s.tokens; ++t) p.label(t) = kIgnored;
    const auto before = p.dweight.values();
    p.loss_value() = 5.0;
    p.run_gradient();
    EXPECT_EQ(p.loss_value(), 0.0);
    EXPECT_EQ(p.dx.values(), std::vector<double>(p.dx.values().size(), 0.0));
    EXPECT_EQ(p.dweight.values(), add ? before : std::vector<double>(before.size(), 0.0));
  }
}

TEST(LinearCrossEntropyGradient, OverwritesOnceThoughTheFirstChunkIsIgnored) {
  Problem whole(Setting{}), p(Setting{});
  for (std::int64_t t = 0; t < 4; ++t) p.label(t) = whole.label(t) = kIgnored;
  whole.setting.chunk = 11;
  whole.workspace = Tensor(DType::f32, {11, whole.setting.vocabulary});
  p.run_gradient();
  whole.run_gradient();
  const auto values = p.dweight.values(), expected = whole.dweight.values();
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 11 * 0x1p-24);
}

TEST(LinearCrossEntropyGradient, AddsToLossAndWeightGradientAfterTheFirstMicroBatch) {
  Setting s;
  s.accumulate = Accumulate::add_after_first;
  Problem p(s);
  p.run_gradient();
  const double loss = p.loss_value();
  const auto dweight = p.dweight.values();
  p.setting.first_micro_batch = false;
  p.run_gradient();
  EXPECT_EQ(p.loss_value(), loss);  // of this micro-batch alone
  const auto twice = p.dweight.values();
  for (std::size_t i = 0; i < twice.size(); ++i) ASSERT_NEAR(twice[i], 2.0 * dweight[i], 11 * 0x1p-24);
}

TEST(LinearCrossEntropyGradient, WeightGradientMayBeAbsent) {
  Problem p(Setting{}), frozen(Setting{});
  p.run_gradient();
  run_kernel(cpu::linear_cross_entropy_gradient, {frozen.x.view(), frozen.weight.view(), frozen.labels.view()},
             {frozen.loss.view(), frozen.dx.view(), {}, frozen.workspace.view()}, frozen.attributes(),
             frozen.scalars());
  EXPECT_EQ(frozen.dx.bytes, p.dx.bytes);
  EXPECT_EQ(frozen.loss.bytes, p.loss.bytes);
}

TEST(LinearCrossEntropyGradient, NonFiniteLogitsGiveANonFiniteLossAndGradient) {
  for (const float value : {HUGE_VALF, -HUGE_VALF, std::nanf("")}) {
    for (const std::int64_t element : {std::int64_t{0}, std::int64_t{66}, std::int64_t{31}}) {  // vectors, rest, label
      Setting s;
      s.tokens = 2;
      Problem p(s);
      p.label(0) = p.label(1) = 31;
      for (std::int64_t h = 0; h < s.hidden; ++h) {
        p.weight.view().as<float>()[element * s.hidden + h] = h == 0 ? value : 0.0f;
      }
      p.x.view().as<float>()[0] = 1.0f;
      p.x.view().as<float>()[s.hidden] = 1.0f;
      p.run_gradient();
      // exp(-infinity) = 0 is a probability like another, unless it is the label's.
      const bool defined = value == -HUGE_VALF && element != 31;
      EXPECT_EQ(std::isfinite(p.loss_value()), defined) << value << ", element " << element;
      const auto dweight = p.dweight.values();
      const bool finite = std::all_of(dweight.begin(), dweight.end(), [](double d) { return std::isfinite(d); });
      if (!defined && value != -HUGE_VALF) {
        EXPECT_FALSE(finite) << value << ", element " << element;
      }
    }
  }
}

TEST(LinearCrossEntropy, ALabelOutsideTheVocabularyIsAnError) {
  for (const std::int32_t label : {-1, 67, -101}) {
    Problem p(Setting{});
    p.label(9) = label;
    EXPECT_THROW(p.run_loss(), Error);
  }
}

TEST(LinearCrossEntropyGradient, BitsAreThoseOfOneThread) {
  std::vector<std::vector<std::byte>> first;
  for (const int count : {1, 2, 3, 4}) {
    const ThreadsScope scope(count);
    Setting s;
    s.tokens = 70;
    s.vocabulary = 1031;
    s.chunk = 32;
    s.dtype = DType::bf16;
    Problem p(s);
    p.run_gradient();
    const std::vector<std::vector<std::byte>> results = {p.loss.bytes, p.dx.bytes, p.dweight.bytes};
    if (first.empty()) first = results;
    ASSERT_EQ(results, first) << count << " threads";
  }
}

}  // namespace
}  // namespace heddle
