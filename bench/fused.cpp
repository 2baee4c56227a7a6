// The fused kernels against their unfused twins: the same functions by separate passes over memory, each by all
// threads, as a framework without fusion runs them. Forward and backward, f32. Every measurement has a process of its
// own, so that its peak resident size is its own; both must give the same results.
//   bench_fused WORK fused|unfused threads calls     one line of JSON, for bench/fused.py
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fused/passes.h"
#include "kernels/cpu/kernels.h"
#include "measure.h"

namespace {

using namespace heddle;
using namespace heddle::bench;

double sum_of_squares(const TensorView& x) {
  double sum = 0.0;
  for (std::int64_t i = 0; i < x.elements(); ++i) sum += static_cast<double>(x.as<float>()[i]) * x.as<float>()[i];
  return sum;
}

/// A fused operation, forward and backward, and its unfused twin on the same operands.
class Work {
 public:
  virtual ~Work() = default;
  virtual void fused(const Scratch& scratch) = 0;
  /// Makes the twin's intermediates.
  virtual void prepare_unfused() = 0;
  virtual void unfused(const Scratch& scratch) = 0;
  /// What both write.
  virtual std::vector<TensorView> results() const = 0;
};

constexpr std::int64_t kTokens = 4096, kHidden = 2048;

/// s = x + residual; y = s / sqrt(mean(s^2) + eps) * w
class RmsNorm : public Work {
 public:
  void fused(const Scratch& scratch) override {
    const Scalars scalars;
    const std::array in{x_.view(), w_.view(), residual_.view()};
    const std::array out{y_.view(), inv_.view(), s_.view()};
    const Attributes attributes{{"epsilon", kEpsilon}};
    cpu::rms_norm({in, out, attributes, scalars, scratch});
    const std::array backward_in{d_y_.view(), s_.view(), w_.view(), inv_.view(), TensorView{}};
    const std::array backward_out{dx_.view(), dw_.view(), workspace_.view()};
    cpu::rms_norm_backward({backward_in, backward_out, attributes, scalars, scratch});
  }
  void prepare_unfused() override {
    normed_ = std::make_unique<Intermediate>(n_);
    first_ = std::make_unique<Intermediate>(n_);
    second_ = std::make_unique<Intermediate>(n_);
    per_row_ = std::make_unique<Intermediate>(kTokens);
  }
  void unfused(const Scratch&) override {
    float *normed = normed_->get(), *a = first_->get(), *b = second_->get(), *per_row = per_row_->get();
    float *s = s_.floats(), *inv = inv_.floats(), *dx = dx_.floats();
    add(n_, x_.floats(), residual_.floats(), s);
    multiply(n_, s, s, a);
    sum_rows(kTokens, kHidden, a, inv);
    for (std::int64_t r = 0; r < kTokens; ++r)
      inv[r] = 1.0f / std::sqrt(inv[r] / kHidden + static_cast<float>(kEpsilon));
    multiply_rows(kTokens, kHidden, s, inv, normed);
    multiply_columns(kTokens, kHidden, normed, w_.floats(), y_.floats());
    multiply(n_, d_y_.floats(), normed, a);
    sum_columns(kTokens, kHidden, a, dw_.floats());
    multiply_columns(kTokens, kHidden, d_y_.floats(), w_.floats(), a);  // gradient of normed
    multiply(n_, a, s, b);
    sum_rows(kTokens, kHidden, b, per_row);
    for (std::int64_t r = 0; r < kTokens; ++r) per_row[r] *= -inv[r] * inv[r] * inv[r] / kHidden;
    multiply_rows(kTokens, kHidden, s, per_row, b);
    multiply_rows(kTokens, kHidden, a, inv, dx);
    add(n_, dx, b, dx);
  }
  std::vector<TensorView> results() const override { return {y_.view(), dx_.view(), dw_.view()}; }

 private:
  static constexpr double kEpsilon = 1e-5;
  std::int64_t n_ = kTokens * kHidden;
  Shape shape_{kTokens, kHidden};
  Tensor x_{shape_}, residual_{shape_}, w_{Shape{kHidden}}, y_{shape_}, s_{shape_}, inv_{Shape{kTokens}}, d_y_{shape_};
  Tensor dx_{shape_}, dw_{Shape{kHidden}}, workspace_{Shape{kTokens / 64, kHidden}};
  std::unique_ptr<Intermediate> normed_, first_, second_, per_row_;
};

/// y = x * cos + rotate_half(x) * sin
class Rope : public Work {
 public:
  void fused(const Scratch& scratch) override {
    const Scalars scalars;
    const std::array in{x_.view(), cos_.view(), sin_.view()}, backward_in{d_y_.view(), cos_.view(), sin_.view()};
    const std::array out{y_.view()}, backward_out{dx_.view()};
    cpu::rope({in, out, Attributes{}, scalars, scratch});
    cpu::rope_backward({backward_in, backward_out, Attributes{}, scalars, scratch});
  }
  void prepare_unfused() override {
    rotated_ = std::make_unique<Intermediate>(n_);
    product_ = std::make_unique<Intermediate>(n_);
  }
  void unfused(const Scratch&) override {
    float *rotated = rotated_->get(), *product = product_->get();
    rotate_half(x_.floats(), -1.0f, rotated);
    multiply_angles(x_.floats(), cos_.floats(), product);
    multiply_angles(rotated, sin_.floats(), rotated);
    add(n_, product, rotated, y_.floats());
    multiply_angles(d_y_.floats(), sin_.floats(), product);
    rotate_half(product, 1.0f, rotated);  // transposed: the sign is the other half's
    multiply_angles(d_y_.floats(), cos_.floats(), product);
    add(n_, product, rotated, dx_.floats());
  }
  std::vector<TensorView> results() const override { return {y_.view(), dx_.view()}; }

 private:
  static constexpr std::int64_t kHeads = 32, kHeadDim = kHidden / kHeads, kHalf = kHeadDim / 2;
  /// y = (sign * second half, -sign * first half)
  static void rotate_half(const float* x, float sign, float* y) {
    for_each_row(kTokens * kHeads, kHeadDim, [&](std::int64_t r) {
      for (std::int64_t c = r * kHeadDim; c < r * kHeadDim + kHalf; ++c) {
        y[c] = sign * x[c + kHalf];
        y[c + kHalf] = -sign * x[c];
      }
    });
  }
  static void multiply_angles(const float* x, const float* factor, float* y) {
    for_each_row(kTokens * kHeads, kHeadDim, [&](std::int64_t r) {
      const float* f = factor + r / kHeads * kHalf;
      for (std::int64_t c = 0; c < kHeadDim; ++c) y[r * kHeadDim + c] = x[r * kHeadDim + c] * f[c % kHalf];
    });
  }
  std::int64_t n_ = kTokens * kHidden;
  Shape shape_{kTokens, kHeads, kHeadDim};
  Tensor x_{shape_}, cos_{Shape{kTokens, kHalf}}, sin_{Shape{kTokens, kHalf}}, y_{shape_}, d_y_{shape_}, dx_{shape_};
  std::unique_ptr<Intermediate> rotated_, product_;
};

/// y = silu(gate) * up
class SwiGlu : public Work {
 public:
  void fused(const Scratch& scratch) override {
    const Scalars scalars;
    const std::array in{gate_.view(), up_.view()};
    const std::array out{y_.view()};
    const std::array backward_in{d_y_.view(), gate_.view(), up_.view()};
    const std::array backward_out{d_gate_.view(), d_up_.view()};
    cpu::glu({in, out, attributes_, scalars, scratch});
    cpu::glu_backward({backward_in, backward_out, attributes_, scalars, scratch});
  }
  void prepare_unfused() override {
    activated_ = std::make_unique<Intermediate>(n_);
    gradient_ = std::make_unique<Intermediate>(n_);
  }
  void unfused(const Scratch& scratch) override {
    const Scalars scalars;
    const TensorView activated{activated_->get(), DType::f32, shape_}, gradient{gradient_->get(), DType::f32, shape_};
    const std::array in{gate_.view()}, out{activated};
    cpu::activation({in, out, attributes_, scalars, scratch});
    multiply(n_, activated_->get(), up_.floats(), y_.floats());
    multiply(n_, d_y_.floats(), activated_->get(), d_up_.floats());
    multiply(n_, d_y_.floats(), up_.floats(), gradient_->get());
    const std::array backward_in{gradient, gate_.view()};
    const std::array backward_out{d_gate_.view()};
    cpu::activation_backward({backward_in, backward_out, attributes_, scalars, scratch});
  }
  std::vector<TensorView> results() const override { return {y_.view(), d_gate_.view(), d_up_.view()}; }

 private:
  Attributes attributes_{{"activation", static_cast<std::int64_t>(Activation::silu)}};
  Shape shape_{kTokens, 5632};
  std::int64_t n_ = shape_.elements();
  Tensor gate_{shape_}, up_{shape_}, y_{shape_}, d_y_{shape_}, d_gate_{shape_}, d_up_{shape_};
  std::unique_ptr<Intermediate> activated_, gradient_;
};

/// loss = -log softmax(x W^T)[label], with dx and dW
class LinearCrossEntropy : public Work {
 public:
  LinearCrossEntropy() {
    for (std::int64_t t = 0; t < kRows; ++t) labels_[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(t * 37);
    scalars_.tokens = kRows;
  }
  void fused(const Scratch& scratch) override {
    if (!workspace_) workspace_ = std::make_unique<Intermediate>(kChunk * kVocabulary);
    double loss = 0.0;
    const std::array in{x_.view(), w_.view(), TensorView{labels_.data(), DType::i32, {kRows}}};
    const std::array out{TensorView{&loss, DType::f64, {1}}, dx_.view(), dw_.view(),
                         TensorView{workspace_->get(), DType::f32, {kChunk, kVocabulary}}};
    const Attributes attributes{{"chunk", kChunk}};
    cpu::linear_cross_entropy_gradient({in, out, attributes, scalars_, scratch});
    loss_.floats()[0] = static_cast<float>(loss);
  }
  void prepare_unfused() override {
    logits_ = std::make_unique<Intermediate>(kRows * kVocabulary);
    log_probabilities_ = std::make_unique<Intermediate>(kRows * kVocabulary);
  }
  void unfused(const Scratch& scratch) override {
    float *logits = logits_->get(), *logp = log_probabilities_->get();
    const auto x = cpu::row_major(x_.view()), w = cpu::row_major(w_.view());
    matmul(kRows, kVocabulary, kWidth, x, cpu::transposed(w), logits, scratch);
    std::vector<float> losses(kRows);
    for_each_row(kRows, kVocabulary, [&](std::int64_t t) {
      float *from = logits + t * kVocabulary, *to = logp + t * kVocabulary;
      const float lse = softmax_of_row(from, kVocabulary, kVocabulary, to);
      for (std::int64_t j = 0; j < kVocabulary; ++j) to[j] = from[j] - lse;
      losses[static_cast<std::size_t>(t)] = -to[labels_[static_cast<std::size_t>(t)]];
    });
    double loss = 0.0;
    for (const float l : losses) loss += l;
    loss_.floats()[0] = static_cast<float>(loss);
    for_each_row(kRows, kVocabulary, [&](std::int64_t t) {  // gradient of the logits, in their memory
      float* to = logits + t * kVocabulary;
      exp_of_row(logp + t * kVocabulary, kVocabulary, to);
      to[labels_[static_cast<std::size_t>(t)]] -= 1.0f;
    });
    const auto d = cpu::row_major(logits, DType::f32, kVocabulary);
    matmul(kRows, kWidth, kVocabulary, d, w, dx_.floats(), scratch);
    matmul(kVocabulary, kWidth, kRows, cpu::transposed(d), x, dw_.floats(), scratch);
  }
  std::vector<TensorView> results() const override { return {loss_.view(), dx_.view(), dw_.view()}; }

 private:
  static constexpr std::int64_t kRows = 1024, kWidth = 576, kVocabulary = 49152, kChunk = 256;
  static void matmul(std::int64_t rows, std::int64_t columns, std::int64_t depth, const cpu::MatrixOperand& a,
                     const cpu::MatrixOperand& b, float* c, const Scratch& scratch) {
    cpu::matmul(cpu::dense_product(rows, columns, depth, a, b, c), scratch);
  }
  Scalars scalars_;
  std::array<std::int32_t, kRows> labels_{};
  Tensor x_{Shape{kRows, kWidth}}, w_{Shape{kVocabulary, kWidth}}, loss_{Shape{1}};
  Tensor dx_{Shape{kRows, kWidth}}, dw_{Shape{kVocabulary, kWidth}};
  std::unique_ptr<Intermediate> workspace_, logits_, log_probabilities_;
};

/// o = softmax(q k^T / sqrt(D), causal) v; two query heads share keys and values.
class AttentionWork : public Work {
 public:
  AttentionWork() { scalars_.tokens = kTokens, scalars_.documents = 1; }
  void fused(const Scratch& scratch) override {
    const TensorView documents{starts_.data(), DType::i32, {2}};
    const Attributes attributes{{"scale", kScale}};
    const std::array in{q_.view(), k_.view(), v_.view(), documents};
    const std::array out{o_.view(), lse_.view()};
    cpu::attention({in, out, attributes, scalars_, scratch});
    const std::array backward_in{d_o_.view(), q_.view(), k_.view(), v_.view(), o_.view(), lse_.view(), documents};
    const std::array backward_out{dq_.view(), dk_.view(), dv_.view(), workspace_.view(), TensorView{}};
    cpu::attention_backward({backward_in, backward_out, attributes, scalars_, scratch});
  }
  void prepare_unfused() override {
    scores_ = std::make_unique<Intermediate>(kHeads * kTokens * kTokens);
    probabilities_ = std::make_unique<Intermediate>(kHeads * kTokens * kTokens);
  }
  void unfused(const Scratch& scratch) override {
    for (std::int64_t n = 0; n < kHeads; ++n) {
      multiply_heads(matrix_of(q_, n), cpu::transposed(matrix_of(k_, n / kGroup)), head(scores_, n), scratch);
    }
    for_each_row(kHeads * kTokens, kTokens, [&](std::int64_t r) {
      float* row = scores_->get() + r * kTokens;
      for (std::int64_t j = 0; j < kTokens; ++j) row[j] *= static_cast<float>(kScale);
    });
    for_each_row(kHeads * kTokens, kTokens, [&](std::int64_t r) {
      softmax_of_row(scores_->get() + r * kTokens, r % kTokens + 1, kTokens, probabilities_->get() + r * kTokens);
    });
    for (std::int64_t n = 0; n < kHeads; ++n) {
      multiply_head(square(probabilities_, n), matrix_of(v_, n / kGroup), o_, n, false, scratch);
    }
    for (std::int64_t n = 0; n < kHeads; ++n) {
      multiply_head(cpu::transposed(square(probabilities_, n)), matrix_of(d_o_, n), dv_, n / kGroup, n % kGroup != 0,
                    scratch);
      multiply_heads(matrix_of(d_o_, n), cpu::transposed(matrix_of(v_, n / kGroup)), head(scores_, n), scratch);
    }
    for_each_row(kHeads * kTokens, kTokens, [&](std::int64_t r) {  // the softmax's gradient, in place
      const float* p = probabilities_->get() + r * kTokens;
      float* dp = scores_->get() + r * kTokens;
      float dot = 0.0f;
      for (std::int64_t i = 0; i < kHeadDim; ++i) {  // p . dp = do . o
        const std::int64_t at = (r % kTokens * kHeads + r / kTokens) * kHeadDim + i;
        dot += d_o_.floats()[at] * o_.floats()[at];
      }
      for (std::int64_t j = 0; j < kTokens; ++j) dp[j] = p[j] * (dp[j] - dot);
    });
    for_each_row(kHeads * kTokens, kTokens, [&](std::int64_t r) {
      float* row = scores_->get() + r * kTokens;
      for (std::int64_t j = 0; j < kTokens; ++j) row[j] *= static_cast<float>(kScale);
    });
    for (std::int64_t n = 0; n < kHeads; ++n) {
      multiply_head(square(scores_, n), matrix_of(k_, n / kGroup), dq_, n, false, scratch);
      multiply_head(cpu::transposed(square(scores_, n)), matrix_of(q_, n), dk_, n / kGroup, n % kGroup != 0, scratch);
    }
  }
  std::vector<TensorView> results() const override { return {o_.view(), dq_.view(), dk_.view(), dv_.view()}; }

 private:
  static constexpr std::int64_t kHeads = 4, kGroup = 2, kHeadDim = 64;
  static constexpr double kScale = 0.125;

  static float* head(const std::unique_ptr<Intermediate>& x, std::int64_t n) {
    return x->get() + n * kTokens * kTokens;
  }
  static cpu::MatrixOperand square(const std::unique_ptr<Intermediate>& x, std::int64_t n) {
    return cpu::row_major(head(x, n), DType::f32, kTokens);
  }
  /// Head n of x [T, heads, D] as a matrix [T, D].
  static cpu::MatrixOperand matrix_of(const Tensor& x, std::int64_t n) {
    return cpu::row_major(x.floats() + n * kHeadDim, DType::f32, x.view().shape[1] * kHeadDim);
  }
  /// c [T, T] = a [T, D] * b [D, T]
  static void multiply_heads(const cpu::MatrixOperand& a, const cpu::MatrixOperand& b, float* c,
                             const Scratch& scratch) {
    cpu::matmul(cpu::dense_product(kTokens, kTokens, kHeadDim, a, b, c), scratch);
  }
  /// Head n of c (+)= a [T, T] * b [T, D]
  static void multiply_head(const cpu::MatrixOperand& a, const cpu::MatrixOperand& b, const Tensor& c, std::int64_t n,
                            bool adds, const Scratch& scratch) {
    cpu::MatrixProduct product;
    product.rows = product.depth = kTokens;
    product.columns = kHeadDim;
    product.a = a;
    product.b = b;
    product.c = c.floats() + n * kHeadDim;
    product.c_row_stride = product.addend_row_stride = c.view().shape[1] * kHeadDim;
    product.addend = adds ? product.c : nullptr;
    cpu::matmul(product, scratch);
  }

  Scalars scalars_;
  std::array<std::int32_t, 2> starts_{0, kTokens};
  Shape query_shape_{kTokens, kHeads, kHeadDim}, key_shape_{kTokens, kHeads / kGroup, kHeadDim};
  Tensor q_{query_shape_}, k_{key_shape_}, v_{key_shape_}, o_{query_shape_}, d_o_{query_shape_}, dq_{query_shape_};
  Tensor dk_{key_shape_}, dv_{key_shape_}, lse_{Shape{kHeads, kTokens}}, workspace_{Shape{kHeads, kTokens}};
  std::unique_ptr<Intermediate> scores_, probabilities_;
};

template <typename T>
std::unique_ptr<Work> make() {
  return std::make_unique<T>();
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string_view, std::function<std::unique_ptr<Work>()>> works{
      {"rms_norm", make<RmsNorm>},
      {"rope", make<Rope>},
      {"swiglu", make<SwiGlu>},
      {"linear_cross_entropy", make<LinearCrossEntropy>},
      {"attention", make<AttentionWork>}};
  if (argc != 5 || !works.contains(argv[1])) {
    fmt::print(stderr,
               "usage: bench_fused rms_norm|rope|swiglu|linear_cross_entropy|attention fused|unfused threads calls\n");
    return 2;
  }
  const bool is_fused = std::string_view(argv[2]) == "fused";
  set_threads(std::atoi(argv[3]));
  const OwnedScratch scratch;
  const std::int64_t before = peak_resident_bytes();
  const std::unique_ptr<Work> work = works.at(argv[1])();
  if (!is_fused) work->prepare_unfused();
  std::vector<double> wall, processor;
  for (int call = 0; call <= std::atoi(argv[4]); ++call) {
    const Seconds seconds = seconds_of([&] { is_fused ? work->fused(scratch.get()) : work->unfused(scratch.get()); });
    if (call == 0) continue;  // touches memory for the first time
    wall.push_back(seconds.wall);
    processor.push_back(seconds.processor);
  }
  std::vector<double> results;
  for (const TensorView& result : work->results()) results.push_back(sum_of_squares(result));
  fmt::print("{{\"wall\": [{}], \"processor\": [{}], \"bytes\": {}, \"results\": [{}]}}\n", fmt::join(wall, ", "),
             fmt::join(processor, ", "), peak_resident_bytes() - before, fmt::join(results, ", "));
}
