// Moves of small tiles between tensors and scratch, and what attention needs besides. Rows of a tile are
// [rows][padded D]; transposed tiles are [D][kTile]. Per-target include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_ATTENTION_TILES_INL_H_
#undef HEDDLE_KERNELS_CPU_ATTENTION_TILES_INL_H_
#else
#define HEDDLE_KERNELS_CPU_ATTENTION_TILES_INL_H_
#endif

#include <hwy/cache_control.h>

#include "kernels/cpu/attention_call.h"
#include "kernels/cpu/philox-inl.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

using IntTag = hn::ScalableTag<std::int32_t>;

HWY_INLINE std::int64_t float_lanes() { return static_cast<std::int64_t>(hn::Lanes(FloatTag())); }

/// Copies `count` rows of `columns` elements of type T, each times `factor`, into rows of `padded` floats; zeros behind
/// the columns, and in rows up to a multiple of 4.
template <typename T>
void load_rows_of(const T* from, std::int64_t stride, std::int64_t count, std::int64_t columns, float factor, float* to,
                  std::int64_t padded) {
  const FloatTag d;
  const std::int64_t lanes = float_lanes();
  const auto factors = hn::Set(d, factor);
  for (std::int64_t r = 0; r < count; ++r, from += stride, to += padded) {
    std::int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      hwy::Prefetch(from + 8 * stride + c);  // rows lie apart by whole pages: 3-8% of attention at 4k tokens
      hn::StoreU(hn::Mul(factors, load(d, from + c)), d, to + c);
    }
    if (c < columns) {
      const auto rest = static_cast<std::size_t>(columns - c);
      hn::StoreU(hn::Mul(factors, load_first(d, from + c, rest)), d, to + c);
      c += lanes;
    }
    for (; c < padded; c += lanes) hn::StoreU(hn::Zero(d), d, to + c);
  }
  for (; count % 4 != 0; ++count, to += padded) std::fill(to, to + padded, 0.0f);
}

/// Rows of a tile, each element times `factor`.
template <typename T>
void store_rows_of(const float* from, std::int64_t padded, std::int64_t count, std::int64_t columns, float factor,
                   T* to, std::int64_t stride) {
  const FloatTag d;
  const std::int64_t lanes = float_lanes();
  const auto factors = hn::Set(d, factor);
  for (std::int64_t r = 0; r < count; ++r, from += padded, to += stride) {
    std::int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) store(hn::Mul(factors, hn::LoadU(d, from + c)), d, to + c);
    if (c < columns) {
      store_first(hn::Mul(factors, hn::LoadU(d, from + c)), d, to + c, static_cast<std::size_t>(columns - c));
    }
  }
}

/// Rows [begin, begin + count) of head `head` of x [rows, heads, D], as load_rows_of.
inline void load_rows(const TensorView& x, std::int64_t begin, std::int64_t count, std::int64_t head, float factor,
                      float* to, std::int64_t padded) {
  const std::int64_t columns = x.shape[2], stride = x.shape[1] * columns, offset = begin * stride + head * columns;
  with_element_type(x.dtype, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    load_rows_of(x.as<const T>() + offset, stride, count, columns, factor, to, padded);
  });
}

inline void store_rows(const float* from, std::int64_t padded, const TensorView& x, std::int64_t begin,
                       std::int64_t count, std::int64_t head, float factor = 1.0f) {
  const std::int64_t columns = x.shape[2], stride = x.shape[1] * columns, offset = begin * stride + head * columns;
  with_element_type(x.dtype, [&](auto* null) {
    using T = std::remove_pointer_t<decltype(null)>;
    store_rows_of(from, padded, count, columns, factor, x.as<T>() + offset, stride);
  });
}

/// to[c][r] = from[r][c] in blocks of 4 x 4: whole blocks are read and written, so both tiles have room for them.
inline void transpose(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t columns, float* to,
                      std::int64_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int64_t r = 0; r < (rows + 3) / 4 * 4; ++r) {
    for (std::int64_t c = 0; c < (columns + 3) / 4 * 4; ++c) to[c * to_stride + r] = from[r * from_stride + c];
  }
#else
  const hn::FixedTag<float, 4> d;
  for (std::int64_t r = 0; r < rows; r += 4) {
    for (std::int64_t c = 0; c < columns; c += 4) {
      const float* block = from + r * from_stride + c;
      const auto r0 = hn::LoadU(d, block), r1 = hn::LoadU(d, block + from_stride);
      const auto r2 = hn::LoadU(d, block + 2 * from_stride), r3 = hn::LoadU(d, block + 3 * from_stride);
      const auto lower02 = hn::InterleaveLower(d, r0, r2), lower13 = hn::InterleaveLower(d, r1, r3);
      const auto upper02 = hn::InterleaveUpper(d, r0, r2), upper13 = hn::InterleaveUpper(d, r1, r3);
      float* out = to + c * to_stride + r;
      hn::StoreU(hn::InterleaveLower(d, lower02, lower13), d, out);
      hn::StoreU(hn::InterleaveUpper(d, lower02, lower13), d, out + to_stride);
      hn::StoreU(hn::InterleaveLower(d, upper02, upper13), d, out + 2 * to_stride);
      hn::StoreU(hn::InterleaveUpper(d, upper02, upper13), d, out + 3 * to_stride);
    }
  }
#endif
}

/// exp(x) for x of at most 88, where it is a normal number, 2 ulp; 0 below. NaN gives NaN. Half of the work of exp in
/// math-inl.h, whose range reduction and polynomial these are.
HWY_INLINE FloatVector exp_or_zero(FloatTag d, FloatVector x) {
  const hn::RebindToUnsigned<FloatTag> words;
  constexpr float kLowest = -88.0f;  // its 2^n is 0
  x = hn::IfThenElse(hn::Lt(x, hn::Set(d, kLowest)), hn::Set(d, kLowest), x);
  // Beside 1.5 * 2^23 a float has no room for a fraction: the sum's last bits are the rounded n and the exponent's
  // bias.
  const auto shifter = hn::Set(d, 12582912.0f + 127.0f);
  const auto shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), shifter);
  const auto scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(words, shifted)));
  const auto n = hn::Sub(shifted, shifter);
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::MulAdd(n, hn::Set(d, 2.12194440e-4f), r);
  auto p = hn::MulAdd(hn::Set(d, 1.9875691500e-4f), r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  return hn::Mul(p, scale);
}

/// Lower and upper half of the dropout counter of query t, head n and the four keys that start at 4 * quad.
HWY_INLINE WordVector dropout_counter_low(WordTag d, WordVector t, WordVector quad) {
  return hn::Or(hn::ShiftLeft<26>(t), hn::And(quad, hn::Set(d, 0x03ffffffu)));
}
HWY_INLINE WordVector dropout_counter_high(WordTag d, WordVector t, std::int64_t head) {
  return hn::Or(hn::ShiftRight<6>(t), hn::Set(d, static_cast<std::uint32_t>(head) << 20));
}
/// 1 / (1 - p) where the word keeps its element, else 0.
HWY_INLINE FloatVector dropout_factor(FloatTag d, const AttentionDropout& dropout, WordVector word) {
  const IntTag integers;
  const auto drawn = hn::BitCast(integers, hn::ShiftRight<8>(word));
  const auto keep = hn::Gt(drawn, hn::Set(integers, static_cast<std::int32_t>(dropout.threshold) - 1));
  return hn::IfThenElseZero(hn::RebindMask(d, keep), hn::Set(d, dropout.factor));
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
