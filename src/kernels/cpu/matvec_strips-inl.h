// Columns of a product of one row, shared out over threads: what its ways to multiply have in common; included by
// matvec.cpp. Per-target include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_MATVEC_STRIPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_MATVEC_STRIPS_INL_H_
#undef HEDDLE_KERNELS_CPU_MATVEC_STRIPS_INL_H_
#else
#define HEDDLE_KERNELS_CPU_MATVEC_STRIPS_INL_H_
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <type_traits>

#include "base/threads.h"
#include "kernels/cpu/matvec.h"
#include "kernels/cpu/quantized.h"
#include "kernels/cpu/simd-inl.h"
#include "quantize/four_bit.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

inline constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));
/// Columns of C side by side: few, so that the lines of as many rows of B that are used and brought near stay in the
/// first-level cache, whatever their type. Measured on AVX-512, of a streaming read: f32 with 16 runs at 0.96, with 32
/// at 0.72; bf16 with 16 at 0.96, with 32 at 0.80 and with 64 at 0.60.
inline constexpr std::int64_t kColumns = 16;
inline constexpr int kStrips = static_cast<int>(std::max<std::int64_t>(1, kColumns / kLanes));
static_assert(kColumns % kLanes == 0);

/// values[kDecodedDepth][kLanes] of one vector of columns at a time.
inline constexpr std::int64_t kDecodedDepth = 64;

/// totals[0, count) += values[0, count)
inline void add_values(const void* values, DType dtype, std::int64_t first, std::int64_t count, float* totals) {
  if (values == nullptr) return;
  with_element_type(dtype, [&](auto* type) {
    const auto* from = static_cast<const std::remove_pointer_t<decltype(type)>*>(values) + first;
    for (std::int64_t i = 0; i < count; ++i) totals[i] += static_cast<float>(from[i]);
  });
}

inline void store_values(const float* totals, std::int64_t count, const MatrixProduct& p, std::int64_t column) {
  with_element_type(p.c_dtype, [&](auto* type) HWY_ATTR {
    auto* c = static_cast<std::remove_pointer_t<decltype(type)>*>(p.c) + column;
    const FloatTag d;
    for (std::int64_t i = 0; i < count; i += kLanes) {
      const auto value = hn::Load(d, totals + i);
      if (i + kLanes <= count) {
        store(value, d, c + i);
      } else {
        store_first(value, d, c + i, static_cast<std::size_t>(count - i));
      }
    }
  });
}

using Products = std::span<const MatrixProduct>;

/// Columns of one of several products that are computed together.
struct Strip {
  const MatrixProduct* product = nullptr;
  std::int64_t column = 0, count = 0;
};

template <std::int64_t kCount>
std::int64_t strips_of(const MatrixProduct& p) {
  return (p.columns + kCount - 1) / kCount;
}

/// The strip of that index among those of all products.
template <std::int64_t kCount>
Strip strip_at(Products products, std::int64_t index) {
  const MatrixProduct* p = products.data();
  for (; index >= strips_of<kCount>(*p); ++p) index -= strips_of<kCount>(*p);
  return {p, index * kCount, std::min(kCount, p->columns - index * kCount)};
}

/// Calls multiply(strip, next, totals) for every kCount columns of C, and finishes what it leaves in totals[0, count);
/// the same thread goes on with `next`, if that has a product. Neighbours go to one thread, kRunsPerThread times, and
/// it takes the next of them while it multiplies its last, so that these are brought near too.
template <std::int64_t kCount, std::int64_t kRunsPerThread, typename Multiply>
void for_each_strip(Products products, const Multiply& multiply) {
  constexpr std::int64_t kMostStrips = 64;  // so that a thread that is held up holds up few
  std::int64_t strips = 0;
  for (const MatrixProduct& p : products) strips += strips_of<kCount>(p);
  const std::int64_t wanted = kRunsPerThread * threads();
  const std::int64_t run = std::min(kMostStrips, (strips + wanted - 1) / wanted);
  std::atomic<std::int64_t> runs_taken = 0;
  const auto strip_or_none = [&](std::int64_t i) { return i < strips ? strip_at<kCount>(products, i) : Strip(); };
  parallel_for(std::min<std::int64_t>(threads(), strips), [&](std::int64_t, int) HWY_ATTR {
    const auto take_run = [&] { return runs_taken.fetch_add(1, std::memory_order_relaxed) * run; };
    std::int64_t i = take_run();
    for (Strip next = strip_or_none(i); next.product != nullptr;) {
      const Strip strip = next;
      const MatrixProduct& p = *strip.product;
      i = (i + 1) % run != 0 ? i + 1 : take_run();
      next = strip_or_none(i);
      HWY_ALIGN float totals[kCount];
      multiply(strip, next, totals);
      add_values(p.bias, p.bias_dtype, strip.column, strip.count, totals);
      add_values(p.addend, p.c_dtype, strip.column, strip.count, totals);
      store_values(totals, strip.count, p, strip.column);
    }
  });
}

template <typename T>
const T* column_of(const MatrixProduct& p, std::int64_t column) {
  return static_cast<const T*>(p.b.data) + column * p.b.column_stride;
}

/// How far to prefetch, in elements of B: the same place in the next columns, while those and these fit the
/// second-level cache; else further along. Prefetchers of the processor do not follow that many rows at once, and rows
/// are too short for them to learn.
template <typename T>
std::int64_t prefetch_distance(const Strip& strip, const Strip& next) {
  constexpr std::int64_t kMostBytes = std::int64_t{256} << 10, kSize = static_cast<std::int64_t>(sizeof(T));
  if (kColumns * strip.product->b.column_stride * kSize > kMostBytes) return 1024 / kSize;
  if (next.product == nullptr) return 0;
  return column_of<T>(*next.product, next.column) - column_of<T>(*strip.product, strip.column);
}

/// Brings the next columns of a quantized B near, an equal part with each step of depth; they lie behind these ones.
class NextColumns {
 public:
  NextColumns(const MatrixOperand& b, std::int64_t column, std::int64_t count, std::int64_t steps) {
    const std::int64_t row = b.first / b.column_stride + column + count;
    const auto* data = static_cast<const std::byte*>(b.data);
    const auto run_at = [&](std::int64_t offset, std::int64_t row_bytes) {
      return Run{data + offset + row * row_bytes, (row_bytes * count / steps + kLine - 1) / kLine * kLine};
    };
    if (is_four_bit(b.dtype)) {
      const std::int64_t scale_bytes = is_double_quantized(b.dtype) ? 1 : 4;
      runs_[0] = run_at(0, b.column_stride / 2);
      runs_[1] = run_at(FourBitLayout(b.dtype, b.elements).scales, b.column_stride / kFourBitBlock * scale_bytes);
    } else {
      runs_[0] = run_at(0, storage_bytes(b.dtype, b.column_stride));
    }
  }
  void prefetch() {
    for (Run& run : runs_) {
      for (std::int64_t byte = 0; byte < run.step; byte += kLine) __builtin_prefetch(run.next + byte, 0, 2);
      run.next += run.step;
    }
  }

 private:
  static constexpr std::int64_t kLine = 64;
  struct Run {
    const std::byte* next = nullptr;
    std::int64_t step = 0;
  };
  Run runs_[2];
};

#endif
}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
