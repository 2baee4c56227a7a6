// What the conformance harness does not say: bits where they are promised, limits, NaN.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/error.h"
#include "instruction_sets.h"
#include "kernels/cpu/kernels.h"
#include "ops/block_tree.h"

namespace heddle {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

template <typename T>
TensorView view(std::vector<T>& values) {
  return {values.data(), DTypeOf<T>::value, {static_cast<std::int64_t>(values.size())}};
}

void run(Kernel kernel, std::vector<TensorView> in, std::vector<TensorView> out, const Attributes& attributes = {},
         const Scalars& scalars = {}) {
  std::vector<std::byte> memory(std::size_t{1} << 20);
  const Scratch scratch{.shared = memory.data(), .shared_bytes = memory.size()};
  kernel({.in = in, .out = out, .attributes = attributes, .scalars = scalars, .scratch = scratch});
}

/// n numbers of several magnitudes and both signs, by a plain recurrence.
std::vector<float> numbers(std::size_t n, std::uint32_t seed) {
  std::vector<float> list(n);
  for (float& x : list) {
    seed = seed * 1664525u + 1013904223u;
    x = std::ldexp(static_cast<float>(static_cast<std::int32_t>(seed)), -31 - static_cast<int>(seed >> 8 & 7u));
  }
  return list;
}

struct AdamwState {
  std::vector<float> gradient, weight, exp_avg, exp_avg_sq;
  std::vector<float> factor = {0.75f};

  explicit AdamwState(std::size_t n)
      : gradient(numbers(n, 1)), weight(numbers(n, 2)), exp_avg(numbers(n, 3)), exp_avg_sq(numbers(n, 4)) {
    for (float& v : exp_avg_sq) v *= v;
  }
  template <typename A>
  void step(const Scalars& scalars, std::vector<A>* parameter) {
    run(cpu::adamw, {view(gradient), view(factor)},
        {parameter != nullptr ? view(*parameter) : view(weight), parameter != nullptr ? view(weight) : TensorView{},
         view(exp_avg), view(exp_avg_sq)},
        {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.1}}, scalars);
  }
};

/// torch/optim/adamw.py, _single_tensor_adamw, element by element: mul_, lerp_, mul_, addcmul_, addcdiv_.
void adamw_by_pytorch(AdamwState& state, const Scalars& scalars) {
  const double lr = scalars.learning_rate;
  const auto step_size = static_cast<float>(-lr / static_cast<double>(scalars.bias_correction1));
  const auto root_correction = static_cast<float>(std::sqrt(static_cast<double>(scalars.bias_correction2)));
  for (std::size_t i = 0; i < state.weight.size(); ++i) {
    const float g = state.gradient[i] * state.factor[0];
    float &w = state.weight[i], &m = state.exp_avg[i], &v = state.exp_avg_sq[i];
    w = w * static_cast<float>(1.0 - lr * 0.1);
    m = m + static_cast<float>(1.0 - 0.9) * (g - m);
    v = v * static_cast<float>(0.999) + static_cast<float>(1.0 - 0.999) * g * g;
    w = w + step_size * m / (std::sqrt(v) / root_correction + 1e-8f);
  }
}

TEST(Adamw, HasTheBitsOfPyTorchsFormulaOnEveryInstructionSet) {
  const Scalars scalars{.learning_rate = 3e-4f, .bias_correction1 = 0.271f, .bias_correction2 = 0.002997f};
  AdamwState expected(1037);
  for (int step = 0; step < 3; ++step) adamw_by_pytorch(expected, scalars);
  test::with_each_instruction_set([&](const char* name) {
    AdamwState state(1037);
    for (int step = 0; step < 3; ++step) state.step<float>(scalars, nullptr);
    EXPECT_EQ(state.weight, expected.weight) << name;
    EXPECT_EQ(state.exp_avg, expected.exp_avg) << name;
    EXPECT_EQ(state.exp_avg_sq, expected.exp_avg_sq) << name;
  });
}

TEST(Adamw, FirstStepMovesEachWeightByTheLearningRateAgainstItsGradient) {
  // With m = v = 0 and no decay, m / bc1 = g and sqrt(v / bc2) = |g|.
  std::vector<float> gradient = {0.5f, -2.0f, 1e-3f}, weight = {1.0f, 1.0f, 1.0f}, m(3, 0.0f), v(3, 0.0f), one = {1.0f};
  run(cpu::adamw, {view(gradient), view(one)}, {view(weight), TensorView{}, view(m), view(v)},
      {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.0}},
      {.learning_rate = 0.25f, .bias_correction1 = 0.1f, .bias_correction2 = 0.001f});
  EXPECT_NEAR(weight[0], 0.75, 1e-6);
  EXPECT_NEAR(weight[1], 1.25, 1e-6);
  EXPECT_NEAR(weight[2], 0.75, 5e-6);  // epsilon is 1e-5 of this gradient
}

TEST(Adamw, LeavesTheBitsOfWeightsWhereTheLearningRateIsZero) {
  const Scalars scalars{.learning_rate = 0.0f, .bias_correction1 = 0.1f, .bias_correction2 = 0.001f};
  AdamwState state(100);
  state.weight[3] = -0.0f;
  state.weight[99] = -0.0f;
  state.gradient[4] = kInfinity;
  state.gradient[3] = -1e3f;  // its step would be +0
  const std::vector<float> before = state.weight;
  std::vector<BFloat16> parameter(100);
  state.step(scalars, &parameter);
  EXPECT_EQ(std::memcmp(before.data(), state.weight.data(), before.size() * sizeof(float)), 0);
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(parameter[i].bits, BFloat16(before[i]).bits);
  EXPECT_NE(state.exp_avg, AdamwState(100).exp_avg);  // the moments go on
}

TEST(Adamw, GivesTheParameterAsItsMasterRounded) {
  const Scalars scalars{.learning_rate = 1e-2f, .bias_correction1 = 0.1f, .bias_correction2 = 0.001f};
  AdamwState state(50), alone(50);
  std::vector<Float16> parameter(50);
  state.step(scalars, &parameter);
  alone.step<float>(scalars, nullptr);
  EXPECT_EQ(state.weight, alone.weight);
  for (std::size_t i = 0; i < 50; ++i) EXPECT_EQ(parameter[i].bits, Float16(state.weight[i]).bits);
}

TEST(Adamw, DoesNotDependOnHowATensorIsCut) {
  // ZeRO gives each rank a piece; where it starts must not matter.
  const Scalars scalars{.learning_rate = 1e-2f, .bias_correction1 = 0.1f, .bias_correction2 = 0.001f};
  AdamwState whole(1000), pieces(1000);
  whole.step<float>(scalars, nullptr);
  for (const auto& [begin, count] : {std::pair<int, int>{0, 333}, {333, 1}, {334, 666}}) {
    const auto piece = [&, at = begin, n = count](std::vector<float>& all) {
      return TensorView{all.data() + at, DType::f32, {n}};
    };
    run(cpu::adamw, {piece(pieces.gradient), view(pieces.factor)},
        {piece(pieces.weight), TensorView{}, piece(pieces.exp_avg), piece(pieces.exp_avg_sq)},
        {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.1}}, scalars);
  }
  EXPECT_EQ(whole.weight, pieces.weight);
  EXPECT_EQ(whole.exp_avg_sq, pieces.exp_avg_sq);
}

TEST(GradientNorm, ClipsAsPyTorchDoes) {
  // torch.nn.utils.clip_grad_norm_: clip_coef = max_norm / (total_norm + 1e-6), clamped to 1.
  std::vector<double> sums(2 * kMostRuns), norm = {0.0};  // of two tensors of one block each
  sums[0] = 9.0;
  sums[kMostRuns] = 16.0;
  std::vector<float> factor = {0.0f};
  const TensorView runs{sums.data(), DType::f64, {1, 2, kMostRuns}};
  const Attributes attributes{{"elements", std::vector<double>{16.0, 16.0}}};
  const auto clip = [&](float limit, float inverse_loss_scale) {
    run(cpu::gradient_norm, {runs}, {view(norm), view(factor)}, attributes,
        {.inverse_loss_scale = inverse_loss_scale, .max_grad_norm = limit});
  };
  clip(1.0f, 1.0f);
  EXPECT_DOUBLE_EQ(norm[0], 5.0);
  EXPECT_FLOAT_EQ(factor[0], static_cast<float>(1.0 / 5.000001));
  clip(10.0f, 1.0f);
  EXPECT_EQ(factor[0], 1.0f);
  clip(0.0f, 0.5f);
  EXPECT_DOUBLE_EQ(norm[0], 2.5);
  EXPECT_EQ(factor[0], 0.5f);
  clip(1.0f, 0.5f);
  EXPECT_FLOAT_EQ(factor[0], static_cast<float>(0.5 / 2.500001));
}

TEST(GradientNorm, ShowsNaNAndInfinity) {
  std::vector<double> sums(kMostRuns, std::numeric_limits<double>::quiet_NaN()), norm = {0.0};
  std::vector<float> factor = {0.0f};
  const TensorView runs{sums.data(), DType::f64, {1, 1, kMostRuns}};
  const Attributes attributes{{"elements", std::vector<double>{16.0}}};
  run(cpu::gradient_norm, {runs}, {view(norm), view(factor)}, attributes, {.max_grad_norm = 1.0f});
  EXPECT_TRUE(std::isnan(norm[0]));
  EXPECT_TRUE(std::isnan(factor[0]));
  sums[0] = std::numeric_limits<double>::infinity();
  run(cpu::gradient_norm, {runs}, {view(norm), view(factor)}, attributes, {.max_grad_norm = 1.0f});
  EXPECT_TRUE(std::isinf(norm[0]));
}

/// Sum of squares of `x` by `ranks` that hold a piece each, put together as gradient_norm does it.
double sum_over_ranks(const std::vector<float>& x, int ranks) {
  const auto elements = static_cast<std::int64_t>(x.size());
  const std::int64_t block = block_elements(elements), piece = (block_count(elements) + ranks - 1) / ranks * block;
  std::vector<double> sums(static_cast<std::size_t>(ranks) * kMostRuns), norm = {0.0};
  std::vector<float> factor = {0.0f};
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t begin = std::min(rank * piece, elements), end = std::min(begin + piece, elements);
    const TensorView part{const_cast<float*>(x.data()) + begin, DType::f32, {end - begin}};
    run(cpu::sum_of_squares, {part}, {TensorView{sums.data() + rank * kMostRuns, DType::f64, {kMostRuns}}},
        {{"elements", elements}, {"begin", begin}});
  }
  run(cpu::gradient_norm, {TensorView{sums.data(), DType::f64, {ranks, 1, kMostRuns}}}, {view(norm), view(factor)},
      {{"elements", std::vector<double>{static_cast<double>(elements)}}, {"ranks", std::int64_t{ranks}}});
  return norm[0] * norm[0];
}

TEST(SumOfSquares, LosesNothingToTheSizeOfTheTensor) {
  // 2^20 squares of 2^-12 beside one of 2^6: the sum is 2^12 + 2^-4 exactly; in f32 the small ones would be lost.
  std::vector<float> x((1u << 20) + 1u, 0x1p-12f);
  x[77777] = 64.0f;
  EXPECT_NEAR(sum_over_ranks(x, 1), 4096.0 + 0x1p-4, 1e-11);  // through the square root and back
}

TEST(SumOfSquares, IsTheSameBitsForAnyNumberOfRanks) {
  for (const std::size_t size : {1u, 15u, 64u, 4096u, 16383u, 16384u, 100001u}) {
    std::vector<float> x(size);
    for (std::size_t i = 0; i < size; ++i)
      x[i] = std::sin(static_cast<float>(3 * i + 1)) * std::exp2(static_cast<float>(i % 13));
    const double one = sum_over_ranks(x, 1);
    for (const int ranks : {2, 3, 4, 5, 8, 64}) EXPECT_EQ(sum_over_ranks(x, ranks), one) << size << " over " << ranks;
  }
}

TEST(Activations, KeepNaN) {
  for (const auto kind : {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
    std::vector<float> x = {kNaN, 1.0f}, up = {1.0f, kNaN}, y(2), z(2);
    const Attributes attributes{{"activation", static_cast<std::int64_t>(kind)}};
    test::with_each_instruction_set([&](const char* name) {
      run(cpu::activation, {view(x)}, {view(y)}, attributes);
      EXPECT_TRUE(std::isnan(y[0]) && std::isfinite(y[1])) << name << ' ' << static_cast<int>(kind);
      run(cpu::glu, {view(x), view(up)}, {view(y)}, attributes);
      EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1])) << name;
      run(cpu::glu_backward, {view(up), view(x), view(up)}, {view(y), view(z)}, attributes);
      EXPECT_TRUE(std::isnan(z[0]) && std::isnan(z[1])) << name;
    });
  }
}

TEST(Activations, AreTheIdentityFarUpAndZeroFarDown) {
  for (const auto kind : {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
    std::vector<float> x = {-3e38f, -200.0f, 200.0f, 3e38f}, one(4, 1.0f), y(4);
    const Attributes attributes{{"activation", static_cast<std::int64_t>(kind)}};
    run(cpu::activation, {view(x)}, {view(y)}, attributes);
    EXPECT_EQ(y, (std::vector<float>{0.0f, 0.0f, 200.0f, 3e38f})) << static_cast<int>(kind);
    run(cpu::activation_backward, {view(one), view(x)}, {view(y)}, attributes);
    EXPECT_EQ(y, (std::vector<float>{0.0f, 0.0f, 1.0f, 1.0f})) << static_cast<int>(kind);
  }
}

TEST(Activations, AreExactToAFewUnitsInTheLowerTailToo) {
  // x Phi(x) at -5: -5 * 2.8665157187919391e-7 (tables of the normal distribution); 1 + erf would leave 3 digits.
  std::vector<float> x = {-5.0f}, y(1);
  run(cpu::activation, {view(x)}, {view(y)}, {{"activation", static_cast<std::int64_t>(Activation::gelu)}});
  EXPECT_NEAR(y[0] / (-5.0 * 2.8665157187919391e-7), 1.0, 8 * 0x1p-23);
}

TEST(Embedding, RefusesAnIdThatTheVocabularyDoesNotHave) {
  std::vector<std::int32_t> ids = {0, 3, -1};
  std::vector<float> weight(6), y(6);
  EXPECT_THROW(run(cpu::embedding, {view(ids), {weight.data(), DType::f32, {3, 2}}}, {{y.data(), DType::f32, {3, 2}}}),
               Error);
}

}  // namespace
}  // namespace heddle
