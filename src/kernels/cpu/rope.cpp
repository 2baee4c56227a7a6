// Rotary position embedding. Su et al. 2021, arXiv:2104.09864; pairs are (j, j + R/2), as in Hugging Face.
// rope_table   cos, sin f32[T, R/2] of positions[t] * inv_freq[j], each times attention_factor; dynamic and longrope
//              choose the frequencies by the length of the document. Overwrites both.
// rope         y[j] = x[j] cos - x[j+R/2] sin, y[j+R/2] = x[j+R/2] cos + x[j] sin; dimensions from R on are copied.
//              Overwrites y, which may be x.
// rope_backward the transposed rotation, that is by the negative angle.
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which decides what they are compiled for.
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/threads.h"
#include "kernels/cpu/blocks.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace {

/// One row of D elements. `sign` is 1, or -1 to rotate back.
template <typename T>
void rotate_row(const T* x, const float* cos, const float* sin, float sign, std::int64_t half, std::int64_t dimensions,
                T* y) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto signs = hn::Set(d, sign);
  std::int64_t j = 0;
  for (; j + lanes <= half; j += lanes) {
    const auto c = hn::LoadU(d, cos + j), s = hn::Mul(signs, hn::LoadU(d, sin + j));
    const auto a = load(d, x + j), b = load(d, x + half + j);
    store(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, y + j);
    store(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, y + half + j);
  }
  if (j < half) {
    const auto rest = static_cast<std::size_t>(half - j);
    const auto c = load_first(d, cos + j, rest), s = hn::Mul(signs, load_first(d, sin + j, rest));
    const auto a = load_first(d, x + j, rest), b = load_first(d, x + half + j, rest);
    store_first(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), d, y + j, rest);
    store_first(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), d, y + half + j, rest);
  }
  if (x != y) std::copy(x + 2 * half, x + dimensions, y + 2 * half);
}

void rotate(const KernelCall& call, float sign) {
  const TensorView &x = call.in[0], &cos = call.in[1], &sin = call.in[2], &y = call.out[0];
  const std::int64_t tokens = x.shape[0], heads = x.shape[1], dimensions = x.shape[2], half = cos.shape[1];
  HEDDLE_CHECK(2 * half <= dimensions);
  with_element_type(x.dtype, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    for_each_block(tokens, rows_per_block(heads * dimensions), [&](std::int64_t begin, std::int64_t count) {
      for (std::int64_t t = begin; t < begin + count; ++t) {
        for (std::int64_t n = 0; n < heads; ++n) {
          const std::int64_t offset = (t * heads + n) * dimensions;
          rotate_row(x.as<const T>() + offset, cos.as<const float>() + t * half, sin.as<const float>() + t * half, sign,
                     half, dimensions, y.as<T>() + offset);
        }
      }
    });
  });
}

void rope(const KernelCall& call) { rotate(call, 1.0f); }
void rope_backward(const KernelCall& call) { rotate(call, -1.0f); }

}  // namespace
}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {
namespace {

/// The frequencies of a document, which two types of rope choose by its number of ids n, as in transformers:
/// - dynamic (NTK scaling): beyond original, base' = base * (factor * n / original - (factor - 1))^(R / (R - 2));
/// - longrope: beyond original, those of long_inv_freq.
class Frequencies {
 public:
  /// Of one document: a list, or the powers of a base of its own.
  struct Chosen {
    const double* list;
    double base, dimensions;

    double operator[](std::int64_t j) const {
      return list != nullptr ? list[j] : std::pow(base, -2.0 * static_cast<double>(j) / dimensions);
    }
  };

  Frequencies(const Attributes& attributes, std::int64_t half)
      : common_(attributes.list("inv_freq")),
        long_(attributes.list("long_inv_freq")),
        base_(attributes.real("dynamic_theta")),
        factor_(attributes.real("dynamic_factor")),
        original_(attributes.integer("original_positions")),
        dimensions_(2.0 * static_cast<double>(half)) {
    HEDDLE_CHECK(static_cast<std::int64_t>(common_.size()) == half);
    HEDDLE_CHECK(long_.empty() || long_.size() == common_.size());
  }

  bool depend_on_length() const { return original_ > 0; }

  Chosen of(std::int64_t ids) const {
    if (!depend_on_length() || ids <= original_) return {common_.data(), 0.0, dimensions_};
    if (!long_.empty()) return {long_.data(), 0.0, dimensions_};
    const double stretch = factor_ * static_cast<double>(ids) / static_cast<double>(original_) - (factor_ - 1.0);
    return {nullptr, base_ * std::pow(stretch, dimensions_ / (dimensions_ - 2.0)), dimensions_};
  }

 private:
  std::span<const double> common_, long_;
  double base_, factor_;
  std::int64_t original_;  // positions; 0: every document has the common ones
  double dimensions_;
};

}  // namespace

void rope_table(const KernelCall& call) {
  const TensorView &positions = call.in[0], &document_starts = call.in[1], &cos = call.out[0], &sin = call.out[1];
  const std::int64_t tokens = cos.shape[0], half = cos.shape[1];
  const double attention_factor = call.attributes.real("attention_factor", 1.0);
  const Frequencies frequencies(call.attributes, half);
  const auto* starts = document_starts.as<const std::int32_t>();
  const bool cached = call.attributes.integer("cached") != 0 || call.scalars.past > 0;

  // A training document of n ids takes n - 1 positions; in generation every id has one.
  const auto ids_of_token = [&](std::int64_t t) -> std::int64_t {
    if (cached) return call.scalars.past + tokens;
    const auto* end = std::upper_bound(starts, starts + call.scalars.documents + 1, t);
    return *end - *(end - 1) + 1;
  };
  for_each_block(tokens, rows_per_block(32 * half), [&](std::int64_t begin, std::int64_t count) {
    for (std::int64_t t = begin; t < begin + count; ++t) {
      const auto position = static_cast<double>(positions.as<const std::int32_t>()[t]);
      const auto inv_freq = frequencies.of(frequencies.depend_on_length() ? ids_of_token(t) : 0);
      for (std::int64_t j = 0; j < half; ++j) {
        const double angle = position * inv_freq[j];
        cos.as<float>()[t * half + j] = static_cast<float>(attention_factor * std::cos(angle));
        sin.as<float>()[t * half + j] = static_cast<float>(attention_factor * std::sin(angle));
      }
    }
  });
}

HWY_EXPORT(rope);
HWY_EXPORT(rope_backward);

void rope(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(rope)(call); }
void rope_backward(const KernelCall& call) { HWY_DYNAMIC_DISPATCH(rope_backward)(call); }

}  // namespace heddle::cpu
#endif
