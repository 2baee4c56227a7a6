// Elements of f32, bf16 and f16 in memory as vectors of f32. Per-target include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_SIMD_INL_H_
#undef HEDDLE_KERNELS_CPU_SIMD_INL_H_
#else
#define HEDDLE_KERNELS_CPU_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/dtype.h"
#include "base/error.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;

/// Largest number of f32 lanes of a vector, for arrays on the stack.
inline constexpr std::size_t kMaxFloatLanes = HWY_MAX_BYTES / sizeof(float);

HWY_INLINE FloatVector load(FloatTag d, const float* from) { return hn::LoadU(d, from); }

HWY_INLINE FloatVector load(FloatTag d, const BFloat16* from) {
  const hn::Rebind<std::uint16_t, FloatTag> narrow;
  const hn::RebindToUnsigned<FloatTag> wide;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, &from->bits))));
}

HWY_INLINE void store(FloatVector v, FloatTag d, float* to) { hn::StoreU(v, d, to); }

using WordTag = hn::RebindToUnsigned<FloatTag>;

/// Rounds to nearest even in integers: AVX-512's own conversion flushes subnormals, and Highway's truncates.
HWY_INLINE FloatVector round_to_bf16(FloatTag d, FloatVector v) {
  const WordTag words;
  const auto word = hn::BitCast(words, v);
  const auto kept = hn::Set(words, 0xffff0000u);
  const auto odd = hn::And(hn::ShiftRight<16>(word), hn::Set(words, 1u));
  const auto rounded = hn::And(hn::Add(word, hn::Add(odd, hn::Set(words, 0x7fffu))), kept);
  const auto quiet = hn::Or(hn::And(word, kept), hn::Set(words, 0x400000u));  // NaN stays NaN
  return hn::IfThenElse(hn::IsNaN(v), hn::BitCast(d, quiet), hn::BitCast(d, rounded));
}

HWY_INLINE void store(FloatVector v, FloatTag d, BFloat16* to) {
  const hn::Rebind<std::uint16_t, FloatTag> narrow;
  const auto word = hn::BitCast(WordTag(), round_to_bf16(d, v));
  hn::StoreU(hn::TruncateTo(narrow, hn::ShiftRight<16>(word)), narrow, &to->bits);
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// Highway's emulation truncates and flushes subnormals; ours rounds.
HWY_INLINE FloatVector load(FloatTag d, const Float16* from) {
  HWY_ALIGN float lanes[kMaxFloatLanes];
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = static_cast<float>(from[i]);
  return hn::Load(d, lanes);
}

HWY_INLINE void store(FloatVector v, FloatTag d, Float16* to) {
  HWY_ALIGN float lanes[kMaxFloatLanes];
  hn::Store(v, d, lanes);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) to[i] = Float16(lanes[i]);
}

#else

HWY_INLINE FloatVector load(FloatTag d, const Float16* from) {
  const hn::Rebind<hwy::float16_t, FloatTag> narrow;
  return hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(from)));
}

HWY_INLINE void store(FloatVector v, FloatTag, Float16* to) {
  const hn::Rebind<hwy::float16_t, FloatTag> narrow;
  hn::StoreU(hn::DemoteTo(narrow, v), narrow, reinterpret_cast<hwy::float16_t*>(to));
}

#endif

/// The first `count` (below the number of lanes) elements, zeros behind them; touches no other memory.
template <typename T>
HWY_INLINE FloatVector load_first(FloatTag d, const T* from, std::size_t count) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (std::is_same_v<T, float>) return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#endif
  HWY_ALIGN T lanes[kMaxFloatLanes] = {};
  std::memcpy(lanes, from, std::min(count, kMaxFloatLanes) * sizeof(T));  // g++ 12 fears more
  return load(d, lanes);
}

template <typename T>
HWY_INLINE void store_first(FloatVector v, FloatTag d, T* to, std::size_t count) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (std::is_same_v<T, float>) return hn::BlendedStore(v, hn::FirstN(d, count), d, to);
#endif
  HWY_ALIGN T lanes[kMaxFloatLanes];
  store(v, d, lanes);
  std::memcpy(to, lanes, count * sizeof(T));
}

HWY_INLINE float sum_lanes(FloatTag d, FloatVector v) { return hn::GetLane(hn::SumOfLanes(d, v)); }

/// y[i] = f(d, x[i]) for n elements. y may be x. Each element goes through the same vector code wherever it stands, so
/// its bits do not depend on how a tensor is cut into pieces.
template <typename T, typename Function>
HWY_INLINE void map(std::int64_t n, const T* x, T* y, const Function& f) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(f(d, load(d, x + i)), d, y + i);
  if (i < n) {
    const auto rest = static_cast<std::size_t>(n - i);
    store_first(f(d, load_first(d, x + i, rest)), d, y + i, rest);
  }
}

/// y[i] = f(d, a[i], b[i]). y may be a or b.
template <typename T, typename Function>
HWY_INLINE void map(std::int64_t n, const T* a, const T* b, T* y, const Function& f) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) store(f(d, load(d, a + i), load(d, b + i)), d, y + i);
  if (i < n) {
    const auto rest = static_cast<std::size_t>(n - i);
    store_first(f(d, load_first(d, a + i, rest), load_first(d, b + i, rest)), d, y + i, rest);
  }
}

/// to[i] += from[i] for n elements.
template <typename T>
HWY_INLINE void add_to(std::int64_t n, const T* from, float* to) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Add(hn::LoadU(d, to + i), load(d, from + i)), d, to + i);
  for (; i < n; ++i) to[i] += static_cast<float>(from[i]);
}

/// How many elements a step of for_each_vector covers: all lanes, or the rest of a row.
struct Whole {};
struct Part {
  std::size_t count;
};
template <typename T>
HWY_INLINE FloatVector load(FloatTag d, const T* from, Whole) {
  return load(d, from);
}
template <typename T>
HWY_INLINE FloatVector load(FloatTag d, const T* from, Part part) {
  return load_first(d, from, part.count);
}
template <typename T>
HWY_INLINE void store(FloatVector v, FloatTag d, T* to, Whole) {
  store(v, d, to);
}
template <typename T>
HWY_INLINE void store(FloatVector v, FloatTag d, T* to, Part part) {
  store_first(v, d, to, part.count);
}
/// v with zeros behind the covered lanes.
HWY_INLINE FloatVector covered(FloatTag, FloatVector v, Whole) { return v; }
HWY_INLINE FloatVector covered(FloatTag d, FloatVector v, Part part) {
  return hn::IfThenElseZero(hn::FirstN(d, part.count), v);
}

/// Calls step(i, Whole{}) for each full vector of [0, n), then step(i, Part{...}) for the rest, if any.
template <typename Step>
HWY_INLINE void for_each_vector(std::int64_t n, const Step& step) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) step(i, Whole{});
  if (i < n) step(i, Part{static_cast<std::size_t>(n - i)});
}

/// Calls f(a null pointer to float, BFloat16 or Float16) as the data type says.
template <typename Function>
void with_element_type(DType type, const Function& f) {
  switch (type) {
    case DType::f32: return f(static_cast<float*>(nullptr));
    case DType::bf16: return f(static_cast<BFloat16*>(nullptr));
    case DType::f16: return f(static_cast<Float16*>(nullptr));
    default: fail("CPU kernels take float32, bfloat16 and float16; this operand is {}", torch_name(type));
  }
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
