// Properties of the optimizers that follow from their formulas; many steps beside other programs: optimizer_steps_test.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/threads.h"
#include "instruction_sets.h"
#include "kernels/cpu/dynamic_map.h"
#include "kernels/cpu/kernels.h"

namespace heddle {
namespace {

TensorView view(std::vector<float>& data, Shape shape = {}) {
  return {data.data(), DType::f32, shape.rank() > 0 ? shape : Shape{static_cast<std::int64_t>(data.size())}};
}
TensorView view(std::vector<std::uint8_t>& data) {
  return {data.data(), DType::u8, {static_cast<std::int64_t>(data.size())}};
}

void run(Kernel kernel, const std::vector<TensorView>& in, const std::vector<TensorView>& out,
         const Attributes& attributes, const Scalars& scalars = {}) {
  static std::vector<std::byte> memory(kSharedScratchBytes + kScratchBytesPerThread + 64);
  set_threads(1);
  auto* start = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64);
  const Scratch scratch{start, start + kSharedScratchBytes, kSharedScratchBytes, kScratchBytesPerThread, 1};
  kernel({.in = in, .out = out, .attributes = attributes, .scalars = scalars, .scratch = scratch});
}

std::vector<float> numbers(std::size_t n, std::uint32_t seed) {
  std::vector<float> list(n);
  for (float& x : list) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<std::int32_t>(seed)) * 0x1p-31f;
  }
  return list;
}

// ---- DynamicMap

TEST(DynamicMap, HasTheValuesThatBitsandbytesMakes) {
  // bitsandbytes 0.50.2, functional.create_dynamic_map, printed with all digits.
  const auto& both = cpu::DynamicMap::signed_map();
  const auto& positive = cpu::DynamicMap::unsigned_map();
  EXPECT_EQ(both.value(0), -0.992968738079071f);
  EXPECT_EQ(both.value(126), -5.500000384017767e-07f);
  EXPECT_EQ(both.value(127), 0.0f);
  EXPECT_EQ(both.value(128), 5.500000384017767e-07f);
  EXPECT_EQ(both.value(255), 1.0f);
  EXPECT_EQ(positive.value(0), 0.0f);
  EXPECT_EQ(positive.value(1), 3.2500003044333425e-07f);
  EXPECT_EQ(positive.value(2), 7.749999895168003e-07f);
  EXPECT_EQ(positive.value(254), 0.9964843988418579f);
  EXPECT_EQ(positive.value(255), 1.0f);
}

TEST(DynamicMap, GivesTheNearestCodeOfEveryMagnitude) {
  for (const auto* map : {&cpu::DynamicMap::signed_map(), &cpu::DynamicMap::unsigned_map()}) {
    const auto nearest = [&](float x) {
      int best = 0;
      for (int code = 1; code < 256; ++code) {
        const auto distance = [&](int c) { return std::fabs(x - map->value(static_cast<std::uint8_t>(c))); };
        if (distance(code) < distance(best)) best = code;
      }
      return best;
    };
    std::vector<float> probes = {0.0f, -0.0f, 1.0f, 0x1p-149f, 0x1p-24f, 0x1p-25f};
    for (int code = 0; code < 255; ++code) {  // the boundaries, and what is beside them
      const float a = map->value(static_cast<std::uint8_t>(code)), b = map->value(static_cast<std::uint8_t>(code + 1));
      const float middle = a + (b - a) / 2;
      for (const float x : {a, middle, std::nextafter(middle, a), std::nextafter(middle, b), a + (b - a) / 3})
        probes.push_back(x);
    }
    for (float x = 1.0f; x > 0x1p-30f; x *= 0.983f) probes.push_back(x);
    for (const float x : probes) {
      EXPECT_EQ(map->code(x), nearest(x)) << x;
      if (map->value(0) < 0) {
        EXPECT_EQ(map->code(-x), nearest(-x)) << -x;
      }
    }
  }
}

// ---- AdamW of 8 bits

struct EightBitState {
  std::vector<float> weight, scale1, scale2;
  std::vector<std::uint8_t> code1, code2;
  explicit EightBitState(std::size_t n)
      : weight(numbers(n, 2)), scale1((n + 255) / 256), scale2(scale1), code1(n), code2(n) {}
  bool operator==(const EightBitState&) const = default;
  void step(std::vector<float>& gradient, std::size_t begin, std::size_t end, double lr) {
    const auto n = static_cast<std::int64_t>(end - begin), blocks = (n + 255) / 256;
    const auto first = static_cast<std::int64_t>(begin / 256);
    run(cpu::adamw_8bit, {{gradient.data() + begin, DType::f32, {n}}, {}},
        {{weight.data() + begin, DType::f32, {n}},
         {},
         {code1.data() + begin, DType::u8, {n}},
         {scale1.data() + first, DType::f32, {blocks}},
         {code2.data() + begin, DType::u8, {n}},
         {scale2.data() + first, DType::f32, {blocks}}},
        {{"beta1", 0.9}, {"beta2", 0.95}, {"epsilon", 1e-8}, {"weight_decay", 0.1}},
        {.learning_rate = lr, .bias_correction1 = 0.1, .bias_correction2 = 0.05});
  }
};

TEST(Adamw8bit, DoesNotDependOnHowATensorIsCutIntoBlocks) {
  std::vector<float> gradient = numbers(5000, 1);
  EightBitState whole(5000), pieces(5000);
  for (int step = 0; step < 3; ++step) {
    whole.step(gradient, 0, 5000, 1e-2);
    for (const auto& [begin, end] : {std::pair<std::size_t, std::size_t>{0, 768}, {768, 1024}, {1024, 5000}})
      pieces.step(gradient, begin, end, 1e-2);
  }
  EXPECT_EQ(whole, pieces);
}

TEST(Adamw8bit, HasTheSameBitsOnEveryInstructionSet) {
  std::vector<EightBitState> results;
  test::with_each_instruction_set([&](const char*) {
    std::vector<float> gradient = numbers(1037, 1);
    EightBitState state(1037);
    for (int step = 0; step < 3; ++step) state.step(gradient, 0, 1037, 1e-2);
    results.push_back(state);
  });
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(Adamw8bit, FirstStepMovesEachWeightByTheLearningRateAgainstItsGradient) {
  // As AdamW: the moments are coded after the step. The largest gradient of the block has the scale (1-b1)|g|.
  std::vector<float> gradient = {0.5f, -2.0f, 1e-3f};
  EightBitState state(3);
  state.weight = {1.0f, 1.0f, 1.0f};
  run(cpu::adamw_8bit, {view(gradient), {}},
      {view(state.weight), {}, view(state.code1), view(state.scale1), view(state.code2), view(state.scale2)},
      {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.0}},
      {.learning_rate = 0.25, .bias_correction1 = 0.1, .bias_correction2 = 0.001});
  EXPECT_NEAR(state.weight[0], 0.75, 1e-6);
  EXPECT_NEAR(state.weight[1], 1.25, 1e-6);
  EXPECT_NEAR(state.scale1[0], 0.2, 1e-7);
  EXPECT_NEAR(state.scale2[0], 0.004, 1e-8);
  EXPECT_EQ(state.code1[1], 0);    // -1 has no code of its own: the one before it
  EXPECT_EQ(state.code2[1], 255);  // 1 has
}

// ---- the others

TEST(Lion, MovesByTheLearningRateWhateverTheGradientsSize) {
  std::vector<float> gradient = {1e-20f, -1e10f, 0.0f}, weight = {1.0f, 1.0f, 1.0f}, moment(3, 0.0f);
  run(cpu::lion, {view(gradient), {}}, {view(weight), {}, view(moment)},
      {{"beta1", 0.9}, {"beta2", 0.99}, {"weight_decay", 0.0}}, {.learning_rate = 0.25});
  EXPECT_EQ(weight, (std::vector<float>{0.75f, 1.25f, 1.0f}));
}

TEST(Updates, LeaveTheBitsOfWeightsWhereTheLearningRateIsZero) {
  const Scalars still{.learning_rate = 0.0, .update = 2};
  std::vector<float> gradient = numbers(300, 1);
  gradient[3] = HUGE_VALF;
  std::vector<float> weight = numbers(300, 2);
  weight[5] = -0.0f;
  const std::vector<float> before = weight;
  std::vector<float> state(300), sums(300);
  const Attributes attributes = {{"beta1", 0.9}, {"beta2", 0.99}, {"momentum", 0.9}, {"weight_decay", 0.1}};
  for (const Kernel kernel : {cpu::lion, cpu::sgd}) {
    run(kernel, {view(gradient), {}}, {view(weight), {}, view(state)}, attributes, still);
    EXPECT_EQ(std::memcmp(before.data(), weight.data(), sizeof(float) * before.size()), 0);
  }
  run(cpu::descend, {view(gradient)}, {view(weight), {}}, attributes, still);
  EXPECT_EQ(std::memcmp(before.data(), weight.data(), sizeof(float) * before.size()), 0);
}

TEST(Adafactor, TheFirstDirectionOfAGradientOfRankOneIsItsSigns) {
  // beta is 0 in the first update; then R C / mean R is g^2 exactly for g = a b^T, and rms is 1.
  constexpr std::int64_t kRows = 9, kColumns = 14;
  std::vector<float> g(kRows * kColumns), rows(kRows), columns(kColumns);
  for (std::size_t i = 0; i < g.size(); ++i)
    g[i] =
        (i % 3 == 0 ? -1.0f : 1.0f) * static_cast<float>(1 + i / kColumns) * (0.5f + static_cast<float>(i % kColumns));
  std::vector<double> sums(kRows + kColumns);
  std::vector<float> direction(g.size());
  run(cpu::adafactor, {view(g, {kRows, kColumns}), {}},
      {view(direction, {kRows, kColumns}),
       view(rows),
       view(columns),
       {},
       {sums.data(), DType::f64, {kRows + kColumns}}},
      {{"decay_rate", -0.8}, {"clip_threshold", 1.0}}, {.update = 1});
  for (std::size_t i = 0; i < g.size(); ++i) EXPECT_NEAR(direction[i], i % 3 == 0 ? -1.0 : 1.0, 2e-6) << i;
}

TEST(Adafactor, ClipsTheRootMeanSquareOfTheDirection) {
  // One large element of a vector after a state of small squares: d = g / sqrt(V) would be of rms above the threshold.
  std::vector<float> g(1000, 1.0f), state(1000, 1e-4f), direction(1000);
  std::vector<double> sums(1000);
  run(cpu::adafactor, {view(g), {}}, {view(direction), {}, {}, view(state), {sums.data(), DType::f64, {1000}}},
      {{"decay_rate", -0.8}, {"clip_threshold", 0.5}}, {.update = 100});
  double sum = 0.0;
  for (const float d : direction) sum += static_cast<double>(d) * static_cast<double>(d);
  EXPECT_NEAR(std::sqrt(sum / 1000.0), 0.5, 1e-6);
}

TEST(NewtonSchulz, BringsSingularValuesNearOne) {
  // Of a diagonal matrix each singular value s goes by itself: five times a s + b s^3 + c s^5 from s / |s|.
  const std::vector<double> diagonal = {3.0, -0.7, 1.5, 0.2};
  std::vector<float> x(4 * 6, 0.0f), y(x.size()), workspace(x.size() + 2 * 16);
  double norm = 0.0;
  for (std::size_t i = 0; i < 4; ++i) {
    x[i * 6 + i] = static_cast<float>(diagonal[i]);
    norm += diagonal[i] * diagonal[i];
  }
  run(cpu::newton_schulz, {view(x, {4, 6})}, {view(y, {4, 6}), view(workspace)}, {{"steps", std::int64_t{5}}});
  for (std::size_t i = 0; i < 4; ++i) {
    double s = diagonal[i] / std::sqrt(norm);
    for (int step = 0; step < 5; ++step) s = 3.4445 * s - 4.7750 * s * s * s + 2.0315 * s * s * s * s * s;
    EXPECT_NEAR(y[i * 6 + i], s, 1e-4);
    EXPECT_GT(std::abs(s), 0.6);
    EXPECT_LT(std::abs(s), 1.3);
    for (std::size_t j = 0; j < 6; ++j) {
      if (j != i) {
        EXPECT_EQ(y[i * 6 + j], 0.0f);
      }
    }
  }
}

TEST(NewtonSchulz, AZeroMatrixStaysZero) {
  std::vector<float> x(12, 0.0f), workspace(12 + 18);
  run(cpu::newton_schulz, {view(x, {3, 4})}, {view(x, {3, 4}), view(workspace)}, {{"steps", std::int64_t{5}}});
  for (const float value : x) EXPECT_EQ(value, 0.0f);
}

}  // namespace
}  // namespace heddle
