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
#include <utility>

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

template <typename T>
const T* column_of(const MatrixProduct& p, std::int64_t column) {
  return static_cast<const T*>(p.b.data) + column * p.b.column_stride;
}

/// What is brought near while columns are multiplied. Memory is read fastest in its own order, far ahead: into the
/// second-level cache go the columns that this thread multiplies some strips later, from first to last. From there the
/// next line of each row goes into the first-level cache.
class Prefetcher {
 public:
  static constexpr std::int64_t kLine = 64, kMostAhead = 4;

  /// How many strips of so many bytes lie between what is multiplied and what is brought near: about as many bytes as a
  /// memory has under way, and with those that they share it with half a small second-level cache. 0 where a strip
  /// alone is more: then rows are brought near along themselves.
  static std::int64_t strips_ahead(std::int64_t strip_bytes) {
    constexpr std::int64_t kBytesAhead = std::int64_t{64} << 10, kMostBytes = std::int64_t{256} << 10;
    return strip_bytes > kMostBytes ? 0 : std::clamp<std::int64_t>(kBytesAhead / strip_bytes, 1, kMostAhead);
  }

  /// `near`: where what is brought near begins, or null; `ahead`: strips_ahead.
  Prefetcher(const std::byte* near, std::int64_t ahead) : next_(near), row_bytes_ahead_(ahead > 0 ? kLine : 1024) {}
  HWY_INLINE void bring_coming(std::int64_t lines) {
    if (next_ == nullptr) return;
    for (std::int64_t i = 0; i < lines; ++i) __builtin_prefetch(next_ + i * kLine, 0, 2);
    next_ += lines * kLine;
  }
  /// At a line of a row; may lie beyond the matrix.
  HWY_INLINE void bring_row(const void* at) const {
    __builtin_prefetch(static_cast<const char*>(at) + row_bytes_ahead_);
  }

 private:
  const std::byte* next_;
  std::int64_t row_bytes_ahead_;
};

/// The strips of some products, shared out to threads: each begins at its own place, so that what was brought near for
/// it is its own, takes a run of neighbours at a time, and when its share is taken goes on with the others'.
class Shares {
 public:
  static constexpr std::int64_t kMost = 256;

  Shares(std::int64_t strips, std::int64_t runs_per_share)
      : strips_(strips), count_(std::min<std::int64_t>({threads(), strips, kMost})) {
    constexpr std::int64_t kMostStrips = 64;  // so that a thread that is held up holds up few
    const std::int64_t wanted = runs_per_share * count_;
    run_ = std::min(kMostStrips, (strips + wanted - 1) / wanted);
    for (std::int64_t i = 0; i < count_; ++i) next_[i].store(begin(i), std::memory_order_relaxed);
  }
  std::int64_t count() const { return count_; }

  /// Strips one after another for the thread that begins with a share.
  class Walk {
   public:
    Walk(Shares& shares, std::int64_t share) : shares_(shares), share_(share), left_(shares.count_) {}
    /// -1: none is left.
    std::int64_t take() {
      while (strip_ == end_) {
        if (left_ == 0) return -1;
        strip_ = shares_.next_[share_].fetch_add(shares_.run_, std::memory_order_relaxed);
        end_ = std::min(strip_ + shares_.run_, shares_.begin(share_ + 1));
        if (strip_ < end_) break;
        strip_ = end_ = 0;
        share_ = (share_ + 1) % shares_.count_;
        --left_;
      }
      return strip_++;
    }

   private:
    Shares& shares_;
    std::int64_t share_, left_, strip_ = 0, end_ = 0;
  };

 private:
  std::int64_t begin(std::int64_t share) const { return strips_ * share / count_; }

  const std::int64_t strips_, count_;
  std::int64_t run_;
  std::atomic<std::int64_t> next_[kMost];
};

using Weights = std::span<const TensorView>;

/// Of weights [outputs, inputs] that are multiplied next, what a thread begins with; null where that is not known.
template <std::int64_t kCount>
const std::byte* begin_of_share(Weights weights, std::int64_t share, std::int64_t shares) {
  std::int64_t strips = 0;
  for (const TensorView& weight : weights) {
    if (is_quantized(weight.dtype)) return nullptr;
    strips += (weight.shape[0] + kCount - 1) / kCount;
  }
  std::int64_t strip = strips * share / shares;
  for (const TensorView& weight : weights) {
    const std::int64_t here = (weight.shape[0] + kCount - 1) / kCount;
    if (strip < here) {
      const auto row_bytes = weight.shape[1] * static_cast<std::int64_t>(dtype_bytes(weight.dtype));
      return weight.as<const std::byte>() + strip * kCount * row_bytes;
    }
    strip -= here;
  }
  return nullptr;
}

/// Calls multiply(strip, near, totals) for every kCount columns of C, and finishes what it leaves in totals[0, count).
/// `near` begins what the same thread reads `ahead` strips later: columns, or its share of the coming weights; null
/// where nothing is to be brought near, as always where `ahead` is 0.
template <std::int64_t kCount, std::int64_t kRunsPerThread, typename Multiply>
void for_each_strip(Products products, Weights coming, std::int64_t ahead, const Multiply& multiply) {
  std::int64_t strips = 0;
  for (const MatrixProduct& p : products) strips += strips_of<kCount>(p);
  Shares shares(strips, kRunsPerThread);
  const auto column_bytes =  // of B where it is not quantized
      ahead > 0 ? products[0].b.column_stride * static_cast<std::int64_t>(dtype_bytes(products[0].b.dtype)) : 0;
  parallel_for(shares.count(), [&](std::int64_t share, int) HWY_ATTR {
    Shares::Walk walk(shares, share);
    const std::byte* behind = ahead > 0 ? begin_of_share<kCount>(coming, share, shares.count()) : nullptr;
    const auto take = [&](Strip& strip) -> const std::byte* {
      const std::int64_t i = walk.take();
      strip = i >= 0 ? strip_at<kCount>(products, i) : Strip();
      if (ahead == 0) return nullptr;
      if (i >= 0) return static_cast<const std::byte*>(strip.product->b.data) + strip.column * column_bytes;
      return behind == nullptr ? nullptr : std::exchange(behind, behind + kCount * column_bytes);
    };
    Strip queue[Prefetcher::kMostAhead];
    const std::int64_t length = std::max<std::int64_t>(1, ahead);
    for (std::int64_t n = 0; n < length; ++n) {
      Prefetcher(take(queue[n]), ahead).bring_coming(queue[n].count * column_bytes / Prefetcher::kLine);
    }
    for (std::int64_t n = 0; queue[n].product != nullptr; n = n + 1 < length ? n + 1 : 0) {
      const Strip strip = queue[n];
      const MatrixProduct& p = *strip.product;
      HWY_ALIGN float totals[kCount];
      multiply(strip, take(queue[n]), totals);
      add_values(p.bias, p.bias_dtype, strip.column, strip.count, totals);
      add_values(p.addend, p.c_dtype, strip.column, strip.count, totals);
      store_values(totals, strip.count, p, strip.column);
    }
  });
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
