#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "base/random.h"
#include "base/threads.h"
#include "instruction_sets.h"
#include "kernels/attention_reference.h"
#include "kernels/cpu/kernels.h"

namespace heddle {
namespace {

using reference::AttentionProblem;

/// A dense tensor of A or f32; its values as doubles.
class Tensor {
 public:
  Tensor(Shape shape, DType type) : shape_(shape), type_(type), bytes_(size() * dtype_bytes(type)) {
    // A kernel must overwrite its outputs; what it leaves out shows as NaN.
    set(std::vector<double>(size(), std::numeric_limits<double>::quiet_NaN()));
  }
  void set(const std::vector<double>& values) {
    convert(values.data(), DType::f64, bytes_.data(), type_, static_cast<std::int64_t>(size()));
  }
  std::vector<double> values() const {
    std::vector<double> result(size());
    convert(bytes_.data(), type_, result.data(), DType::f64, static_cast<std::int64_t>(size()));
    return result;
  }
  TensorView view() { return {bytes_.data(), type_, shape_}; }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::size_t size() const { return static_cast<std::size_t>(shape_.elements()); }

 private:
  Shape shape_;
  DType type_;
  std::vector<std::byte> bytes_;
};

/// Scratch as a run plans it.
struct PlannedScratch {
  std::vector<std::byte> memory;
  Scratch scratch;

  explicit PlannedScratch(int count)
      : memory(kSharedScratchBytes + static_cast<std::size_t>(count) * kScratchBytesPerThread + 64) {
    auto* start = memory.data();
    while (reinterpret_cast<std::uintptr_t>(start) % 64 != 0) ++start;
    scratch = {start, start + kSharedScratchBytes, kSharedScratchBytes, kScratchBytesPerThread, count};
  }
};

struct Dropout {
  double p = 0.0;
  std::int64_t stream = 0;
  std::uint64_t seed = 0, micro_batch = 0;

  /// The documented counter: one call of philox serves four neighbouring keys.
  double factor(std::int64_t t, std::int64_t n, std::int64_t j) const {
    const auto low =
        static_cast<std::uint64_t>(n) << 52 | static_cast<std::uint64_t>(t) << 26 | static_cast<std::uint64_t>(j / 4);
    const auto words = philox(seed, low, static_cast<std::uint64_t>(stream) << 40 ^ micro_batch);
    return static_cast<double>(uniform_from(words[static_cast<std::size_t>(j % 4)])) >= p ? 1.0 / (1.0 - p) : 0.0;
  }
};

Shape query_shape(const AttentionProblem& x) { return {x.tokens(), x.heads, x.head_dim}; }
Shape key_shape(const AttentionProblem& x) { return {x.tokens(), x.kv_heads, x.head_dim}; }

Attributes attributes(const AttentionProblem& x, const Dropout& dropout, bool cached = false) {
  return {{"scale", x.scale},
          {"window", x.window},
          {"softcap", x.softcap},
          {"dropout", dropout.p},
          {"dropout_stream", dropout.stream},
          {"cached", std::int64_t{cached}}};
}

/// Inputs of one problem in A, and what the CPU kernels make of them.
struct Trial {
  AttentionProblem problem;
  DType type;
  Dropout dropout;
  std::vector<std::int32_t> starts;
  Tensor q, k, v, d_output, o, lse, dq, dk, dv;

  explicit Trial(const AttentionProblem& x, DType a = DType::f32, Dropout drop = {}, double spread = 1.0)
      : problem(x),
        type(a),
        dropout(drop),
        starts(x.document_starts()),
        q(query_shape(x), a),
        k(key_shape(x), a),
        v(key_shape(x), a),
        d_output(query_shape(x), a),
        o(query_shape(x), a),
        lse({x.heads, x.tokens()}, DType::f32),
        dq(query_shape(x), a),
        dk(key_shape(x), a),
        dv(key_shape(x), a) {
    Random random(17, 3);
    for (Tensor* tensor : {&q, &k, &v, &d_output}) {
      std::vector<double> values(tensor->size());
      for (double& value : values) value = spread * random.normal();
      tensor->set(values);
    }
    if (dropout.p > 0.0) {
      problem.dropout = [drop](std::int64_t t, std::int64_t n, std::int64_t j) { return drop.factor(t, n, j); };
    }
  }

  Scalars scalars() const {
    Scalars s;
    s.tokens = problem.tokens();
    s.documents = static_cast<std::int64_t>(problem.lengths.size());
    s.seed = dropout.seed;
    s.micro_batch = dropout.micro_batch;
    return s;
  }
  TensorView starts_view() { return {starts.data(), DType::i32, {static_cast<std::int64_t>(starts.size())}}; }

  void forward(int thread_count = 2) {
    set_threads(thread_count);
    const PlannedScratch planned(thread_count);
    const Attributes named = attributes(problem, dropout);
    const Scalars s = scalars();
    const std::array in{q.view(), k.view(), v.view(), starts_view()};
    const std::array out{o.view(), lse.view()};
    cpu::attention({in, out, named, s, planned.scratch});
  }
  void backward(int thread_count = 2) {
    set_threads(thread_count);
    const PlannedScratch planned(thread_count);
    const Attributes named = attributes(problem, dropout);
    const Scalars s = scalars();
    Tensor workspace({problem.heads, problem.tokens()}, DType::f32), dq_sum(query_shape(problem), DType::f32);
    const std::array in{d_output.view(), q.view(), k.view(), v.view(), o.view(), lse.view(), starts_view()};
    const std::array out{dq.view(), dk.view(), dv.view(), workspace.view(),
                         type == DType::f32 ? TensorView{} : dq_sum.view()};
    cpu::attention_backward({in, out, named, s, planned.scratch});
  }
  reference::AttentionResult expected() const {
    return reference::attention(problem, q.values(), k.values(), v.values());
  }
  reference::AttentionGradients expected_gradients() const {
    return reference::attention_backward(problem, d_output.values(), q.values(), k.values(), v.values());
  }
};

/// |actual - expected| <= tolerance * max(|expected|, largest) for every element.
void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance,
                 const std::string& what, double largest = 0.0) {
  ASSERT_EQ(actual.size(), expected.size());
  double worst = 0.0;
  for (double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(actual[i] - expected[i]);
    worst = std::isnan(difference) ? difference : std::max(worst, difference);
    if (std::isnan(worst)) break;
  }
  EXPECT_LE(worst, tolerance * largest) << what << ": largest value " << largest;
}

/// fp32 sums of O(1) terms: 1e-6. A 16-bit result is rounded once, by at most half a unit in its last place, and the
/// gradients of scores also carry the rounding of the output they are computed from.
struct Tolerance {
  double forward, gradient;
};
Tolerance tolerance(DType type) {
  if (type == DType::bf16) return {0x1.0p-8, 0x1.0p-7};
  if (type == DType::f16) return {0x1.0p-11, 0x1.0p-10};
  return {1e-6, 2e-6};
}

void expect_agreement(Trial trial, int thread_count = 2) {
  trial.forward(thread_count);
  const auto expected = trial.expected();
  const Tolerance bound = tolerance(trial.type);
  expect_near(trial.o.values(), expected.o, bound.forward, "o");
  expect_near(trial.lse.values(), expected.lse, 1e-6, "lse");
  trial.backward(thread_count);
  const auto gradients = trial.expected_gradients();
  expect_near(trial.dq.values(), gradients.dq, bound.gradient, "dq", gradients.largest_term);
  expect_near(trial.dk.values(), gradients.dk, bound.gradient, "dk", gradients.largest_term);
  expect_near(trial.dv.values(), gradients.dv, bound.gradient, "dv");
}

AttentionProblem problem(std::vector<std::int64_t> lengths, std::int64_t heads, std::int64_t kv_heads,
                         std::int64_t head_dim) {
  AttentionProblem x;
  x.lengths = std::move(lengths);
  x.heads = heads;
  x.kv_heads = kv_heads;
  x.head_dim = head_dim;
  x.scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  return x;
}

TEST(AttentionReference, BackwardIsTheDerivativeOfForward) {
  AttentionProblem x = problem({5, 1, 4}, 4, 2, 3);
  x.window = 3;
  x.softcap = 2.0;
  const Dropout dropout{0.3, 5, 11, 2};
  Trial trial(x, DType::f32, dropout);
  const auto gradients = trial.expected_gradients();
  const std::vector<double> weights = trial.d_output.values();
  const auto check = [&](std::size_t which, const std::vector<double>& gradient) {
    std::vector<std::vector<double>> inputs{trial.q.values(), trial.k.values(), trial.v.values()};
    const double step = 1e-5;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      double loss[2];
      for (int side = 0; side < 2; ++side) {
        auto moved = inputs;
        moved[which][i] += side == 0 ? step : -step;
        const auto o = reference::attention(trial.problem, moved[0], moved[1], moved[2]).o;
        loss[side] = 0.0;
        for (std::size_t e = 0; e < o.size(); ++e) loss[side] += weights[e] * o[e];
      }
      // Central differences: error O(step^2) = 1e-10 times third derivatives, and 1e-16 / step of rounding.
      EXPECT_NEAR((loss[0] - loss[1]) / (2.0 * step), gradient[i], 1e-8) << "input " << which << ", element " << i;
    }
  };
  check(0, gradients.dq);
  check(1, gradients.dk);
  check(2, gradients.dv);
}

TEST(Attention, AgreesWithTheTextbookForAnyHeadDimension) {
  for (std::int64_t head_dim : {1, 8, 12, 16, 20, 64, 80, 96, 128, 256}) {
    SCOPED_TRACE(head_dim);
    expect_agreement(Trial(problem({100}, 2, 2, head_dim)));
  }
}

TEST(Attention, AgreesWithTheTextbookForAnyLength) {
  for (std::int64_t length : {1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 200}) {
    SCOPED_TRACE(length);
    expect_agreement(Trial(problem({length}, 1, 1, 16)));
  }
}

TEST(Attention, DocumentsDoNotSeeEachOther) {
  expect_agreement(Trial(problem({1, 1, 1, 5, 1, 70, 64, 2, 130, 1, 3}, 2, 1, 12)));
  expect_agreement(Trial(problem(std::vector<std::int64_t>(150, 1), 2, 1, 8)));
  expect_agreement(Trial(problem({3, 0, 61, 0, 0, 64, 0}, 1, 1, 8)));
}

TEST(Attention, QueryHeadsOfAGroupShareKeysAndValues) {
  expect_agreement(Trial(problem({90, 45}, 6, 2, 16)));
  expect_agreement(Trial(problem({90, 45}, 5, 1, 16)));
}

TEST(Attention, WindowHidesOlderKeys) {
  for (std::int64_t window : {1, 2, 7, 16, 63, 64, 65, 100, 1000}) {
    SCOPED_TRACE(window);
    AttentionProblem x = problem({150, 3, 80}, 2, 1, 16);
    x.window = window;
    expect_agreement(Trial(x));
  }
}

TEST(Attention, SoftcapBoundsScores) {
  AttentionProblem x = problem({90, 45}, 2, 1, 16);
  x.softcap = 1.5;
  expect_agreement(Trial(x));
  x.window = 20;
  expect_agreement(Trial(x));
}

TEST(Attention, KeepsPrecisionInSixteenBits) {
  for (DType type : {DType::bf16, DType::f16}) {
    SCOPED_TRACE(std::string(torch_name(type)));
    AttentionProblem x = problem({130, 7, 64}, 4, 2, 20);
    expect_agreement(Trial(x, type));
    x.softcap = 2.0;
    x.window = 33;
    expect_agreement(Trial(x, type, Dropout{0.2, 1, 5, 9}));
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  // Scores of some hundreds: exp without its maximum would be infinite. They carry an absolute error of 1e-7 times
  // their size into the exponent, so the bound is looser.
  AttentionProblem x = problem({130}, 1, 1, 16);
  x.scale = 10.0;
  Trial trial(x, DType::f32, {}, 3.0);
  trial.forward();
  trial.backward();
  const auto expected = trial.expected();
  const auto gradients = trial.expected_gradients();
  expect_near(trial.o.values(), expected.o, 2e-4, "o");
  expect_near(trial.lse.values(), expected.lse, 1e-6, "lse");
  expect_near(trial.dv.values(), gradients.dv, 2e-4, "dv");
}

TEST(Attention, NotANumberIsNotHidden) {
  Trial trial(problem({70}, 1, 1, 16));
  std::vector<double> values = trial.k.values();
  values[5 * 16] = std::numeric_limits<double>::quiet_NaN();
  trial.k.set(values);
  trial.forward();
  const std::vector<double> o = trial.o.values();
  for (std::size_t t = 0; t < 70; ++t) EXPECT_EQ(std::isnan(o[t * 16]), t >= 5) << t;
}

TEST(Attention, DropoutMaskIsTheDocumentedOneInBothDirections) {
  // The references use the mask written out from the documented counter.
  expect_agreement(Trial(problem({100, 3, 77}, 4, 2, 16), DType::f32, Dropout{0.4, 3, 0x123456789abcdefULL, 77}));
  expect_agreement(Trial(problem({1, 2, 3, 4, 5, 6, 7}, 2, 1, 8), DType::f32, Dropout{0.5, 1, 1, 0}), 1);
  AttentionProblem windowed = problem({150}, 2, 2, 12);
  windowed.window = 30;
  expect_agreement(Trial(windowed, DType::f32, Dropout{0.1, 2, 9, 1}));
}

TEST(Attention, DropoutKeepsTheShareOneMinusP) {
  const double p = 0.1;
  const Dropout dropout{p, 3, 42, 7};
  std::int64_t kept = 0, all = 0;
  for (std::int64_t n = 0; n < 2; ++n) {
    for (std::int64_t t = 0; t < 300; ++t) {
      for (std::int64_t j = 0; j <= t; ++j, ++all) kept += dropout.factor(t, n, j) != 0.0;
    }
  }
  const double deviation = std::sqrt(p * (1.0 - p) / static_cast<double>(all));
  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(all), 1.0 - p, 5.0 * deviation);
  // With values of 1 each output is the kept probability over 1 - p, whose mean is 1.
  Trial trial(problem({300}, 2, 2, 8), DType::f32, dropout);
  trial.v.set(std::vector<double>(trial.v.size(), 1.0));
  trial.forward();
  double sum = 0.0;
  for (double value : trial.o.values()) sum += value;
  EXPECT_NEAR(sum / static_cast<double>(trial.o.size()), 1.0, 0.02);
}

TEST(Attention, MasksOfMicroBatchesStreamsAndHeadsDiffer) {
  const auto output = [](Dropout dropout) {
    Trial trial(problem({60}, 2, 2, 8), DType::f32, dropout);
    trial.forward();
    return trial.o.bytes();
  };
  const auto base = output({0.5, 1, 1, 1});
  EXPECT_EQ(base, output({0.5, 1, 1, 1}));
  EXPECT_NE(base, output({0.5, 2, 1, 1}));
  EXPECT_NE(base, output({0.5, 1, 2, 1}));
  EXPECT_NE(base, output({0.5, 1, 1, 2}));
}

TEST(Attention, BitsDoNotDependOnThreads) {
  struct Case {
    std::vector<std::int64_t> lengths;
    std::int64_t heads, kv_heads;
  };
  // Few and many units: with fewer for each thread, one holds a tile instead of two. With one key-value head each unit
  // of the backward waits for the one before. With four documents of whole tiles each thread of two or four has its
  // own.
  for (const Case& c : {Case{{1050}, 2, 1}, Case{{330}, 6, 3}, Case{{70, 1, 200, 30, 5}, 4, 2},
                        Case{{300, 1, 1, 1}, 2, 2}, Case{{256, 256, 256, 256}, 4, 2}}) {
    for (DType type : {DType::f32, DType::bf16}) {
      AttentionProblem x = problem(c.lengths, c.heads, c.kv_heads, 20);
      x.window = 150;
      const auto trial_with = [&](int count) {
        Trial trial(x, type, Dropout{0.1, 1, 2, 3});
        trial.forward(count);
        trial.backward(count);
        return std::vector{trial.o.bytes(), trial.lse.bytes(), trial.dq.bytes(), trial.dk.bytes(), trial.dv.bytes()};
      };
      const auto alone = trial_with(1);
      for (int count : {2, 3, 4, 7})
        EXPECT_EQ(trial_with(count), alone) << count << " threads, " << c.heads << " heads";
    }
  }
}

TEST(Attention, EveryInstructionSetOfThisMachineAgrees) {
  for (std::int64_t target : {HWY_SCALAR, HWY_EMU128, HWY_SSE4, HWY_AVX2, HWY_AVX3, HWY_NEON}) {
    if ((hwy::SupportedTargets() & target) == 0) continue;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    AttentionProblem x = problem({70, 1, 9, 64}, 4, 2, 20);
    x.window = 50;
    expect_agreement(Trial(x, DType::f32, Dropout{0.2, 1, 2, 3}));
    expect_agreement(Trial(x, DType::bf16));
    hwy::SetSupportedTargetsForTest(0);
  }
}

TEST(Attention, BitsOfBFloat16DoNotDependOnTheInstructions) {
  // Odd lengths and documents, so that pairs of keys and of queries are cut; a window; both tiles to a block.
  AttentionProblem windowed = problem({70, 1, 9, 64, 33}, 4, 2, 20);
  windowed.window = 51;
  AttentionProblem capped = problem({191}, 2, 1, 33);
  capped.softcap = 2.0;
  const std::pair<AttentionProblem, Dropout> cases[] = {
      {windowed, {}}, {capped, {}}, {problem({129, 3}, 2, 2, 64), Dropout{0.2, 1, 2, 3}}, {problem({1}, 1, 1, 1), {}}};
  for (const auto& [x, dropout] : cases) {
    std::optional<cpu::PairSum> pair_sum;
    std::vector<std::vector<std::byte>> expected;
    test::with_each_way_to_multiply([&, &x = x, &dropout = dropout](std::string_view name) {
      // These multiply and add in two roundings, of which the exponential has others.
      if (name == "SSE2" || name == "EMU128" || name == "SCALAR") return;
      Trial trial(x, DType::bf16, dropout);
      trial.forward();
      trial.backward();
      const std::vector bits{trial.o.bytes(), trial.lse.bytes(), trial.dq.bytes(), trial.dk.bytes(), trial.dv.bytes()};
      if (pair_sum != cpu::bf16_pair_sum()) expected = bits;  // the first, or Arm's, which has bits of its own
      pair_sum = cpu::bf16_pair_sum();
      for (std::size_t i = 0; i < bits.size(); ++i) {
        EXPECT_EQ(bits[i], expected[i]) << name << ", result " << i << ", head_dim " << x.head_dim;
      }
    });
  }
}

/// Scores of 0 but for the first key's, and values of 1 but for the first's, 0.
TEST(Attention, ProductsOfBFloat16TakeRoundedProbabilities) {
  // exp(-0.53125) = 0.58787 lies between 0.5859375 and 0.58984375 of bf16, a little nearer the former.
  constexpr double kLead = 0.53125, kRounded = 0.5859375;
  const double p = std::exp(-kLead);
  ASSERT_EQ(static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(p)))), kRounded);
  AttentionProblem x = problem({64}, 1, 1, 1);
  x.scale = 1.0;
  test::with_each_way_to_multiply([&](const char* name) {
    SCOPED_TRACE(name);
    Trial trial(x, DType::bf16);
    std::vector<double> keys(64, 0.0), values(64, 1.0);
    keys[0] = kLead;
    values[0] = 0.0;
    trial.q.set(std::vector<double>(64, 1.0));
    trial.k.set(keys);
    trial.v.set(values);
    trial.forward();
    // The sum of the probabilities, and with it lse, is not rounded.
    EXPECT_NEAR(trial.lse.values()[63], kLead + std::log(1.0 + 63.0 * p), 1e-6);
    const auto in_bf16 = [](double value) {
      return static_cast<double>(static_cast<float>(BFloat16(static_cast<float>(value))));
    };
    for (std::size_t t : {1u, 20u, 40u, 62u, 63u}) {
      const auto others = static_cast<double>(t);
      const double sum = 1.0 + others * p;
      ASSERT_NE(in_bf16(others * kRounded / sum), in_bf16(others * p / sum));
      EXPECT_EQ(trial.o.values()[t], in_bf16(others * kRounded / sum)) << t;
    }
  });
}

/// Rows [begin, end) of a tensor [T, ...].
TensorView rows(TensorView x, std::int64_t begin, std::int64_t end) {
  const auto row_bytes = static_cast<std::size_t>(x.elements() / x.shape[0]) * dtype_bytes(x.dtype);
  x.data = x.as<std::byte>() + static_cast<std::size_t>(begin) * row_bytes;
  x.shape[0] = end - begin;
  return x;
}

/// Attention of queries [past, past + count) against a cache with room for more, and of later keys that must not count.
void expect_cached_agreement(Trial trial, const std::vector<std::int64_t>& steps) {
  trial.forward();
  const std::vector<double> expected = trial.o.values(), expected_lse = trial.lse.values();
  const AttentionProblem& x = trial.problem;
  const Attributes named = attributes(x, {}, true);
  const PlannedScratch planned(2);
  Tensor k_cache({x.tokens() + 9, x.kv_heads, x.head_dim}, trial.type),
      v_cache({x.tokens() + 9, x.kv_heads, x.head_dim}, trial.type);
  Tensor o(query_shape(x), trial.type);
  std::int64_t past = 0;
  for (std::int64_t count : steps) {
    Scalars s;
    s.tokens = count;
    s.documents = 1;
    s.past = past;
    std::vector<std::int32_t> starts{0, static_cast<std::int32_t>(count)};
    for (auto [from, cache] : {std::pair{&trial.k, &k_cache}, std::pair{&trial.v, &v_cache}}) {
      const std::array in{rows(from->view(), past, past + count)};
      const std::array out{cache->view()};
      cpu::kv_append({in, out, {}, s, planned.scratch});
    }
    Tensor lse({x.heads, count}, DType::f32);
    const std::array in{rows(trial.q.view(), past, past + count), k_cache.view(), v_cache.view(),
                        TensorView{starts.data(), DType::i32, {2}}};
    const std::array out{rows(o.view(), past, past + count), lse.view()};
    cpu::attention({in, out, named, s, planned.scratch});
    const std::vector<double> sums = lse.values();
    for (std::int64_t n = 0; n < x.heads; ++n) {
      for (std::int64_t t = 0; t < count; ++t) {
        const double full = expected_lse[static_cast<std::size_t>(n * x.tokens() + past + t)];
        EXPECT_NEAR(sums[static_cast<std::size_t>(n * count + t)], full, 2e-6 * std::max(1.0, std::abs(full)));
      }
    }
    past += count;
  }
  ASSERT_EQ(past, x.tokens());
  expect_near(o.values(), expected, tolerance(trial.type).forward, "cached o");
}

TEST(Attention, GenerationWithACacheEqualsTheWholeForward) {
  std::vector<std::int64_t> one_by_one{100};
  one_by_one.resize(31, 1);
  for (DType type : {DType::f32, DType::bf16}) {
    expect_cached_agreement(Trial(problem({130}, 4, 2, 20), type), one_by_one);
    expect_cached_agreement(Trial(problem({130}, 3, 3, 64), type), {1, 1, 60, 5, 63});
    AttentionProblem x = problem({130}, 6, 2, 16);
    x.window = 40;
    x.softcap = 2.0;
    expect_cached_agreement(Trial(x, type), one_by_one);
  }
}

TEST(Attention, OneQueryReadsALongCacheInChunks) {
  Trial trial(problem({3000}, 4, 2, 16));
  expect_cached_agreement(std::move(trial), {2998, 1, 1});
}

/// Output and lse of the last query of a problem, whose keys and values are all in the cache.
std::vector<std::vector<std::byte>> last_of(Trial& trial, int thread_count) {
  set_threads(thread_count);
  const AttentionProblem& x = trial.problem;
  const PlannedScratch planned(thread_count);
  Scalars s;
  s.tokens = s.documents = 1;
  s.past = x.tokens() - 1;
  std::array<std::int32_t, 2> starts{0, 1};
  Tensor o({1, x.heads, x.head_dim}, trial.type), lse({x.heads, 1}, DType::f32);
  const std::array in{rows(trial.q.view(), s.past, x.tokens()), trial.k.view(), trial.v.view(),
                      TensorView{starts.data(), DType::i32, {2}}};
  const std::array out{o.view(), lse.view()};
  cpu::attention({in, out, attributes(x, {}, true), s, planned.scratch});
  return {o.bytes(), lse.bytes()};
}

TEST(Attention, BitsOfOneQueryDoNotDependOnThreads) {
  // Fewer units than threads; tiles in part; five heads on one key, more than go together; chunks of several tiles.
  for (const auto& [keys, heads, kv_heads] :
       {std::array<std::int64_t, 3>{1, 2, 1}, {65, 3, 3}, {200, 5, 1}, {545, 9, 3}, {2500, 2, 1}}) {
    for (DType type : {DType::f32, DType::bf16}) {
      AttentionProblem x = problem({keys}, heads, kv_heads, 20);
      if (keys == 545) x.window = 300;
      Trial trial(x, type);
      const auto alone = last_of(trial, 1);
      for (int count : {2, 3, 7}) EXPECT_EQ(last_of(trial, count), alone) << count << " threads, " << keys << " keys";
    }
  }
}

TEST(KvAppend, OverwritesItsRowsAndNoOthers) {
  Tensor k({3, 2, 5}, DType::bf16), cache({8, 2, 5}, DType::bf16);
  std::vector<double> added(30), before(80);
  for (std::size_t i = 0; i < added.size(); ++i) added[i] = static_cast<double>(i) + 1.0;
  for (std::size_t i = 0; i < before.size(); ++i) before[i] = -static_cast<double>(i);
  k.set(added);
  cache.set(before);
  Scalars s;
  s.past = 4;
  const std::array in{k.view()};
  const std::array out{cache.view()};
  cpu::kv_append({in, out, {}, s, {}});
  const std::vector<double> after = cache.values();
  for (std::size_t i = 0; i < 80; ++i) EXPECT_EQ(after[i], i >= 40 && i < 70 ? added[i - 40] : before[i]);
}

}  // namespace
}  // namespace heddle
