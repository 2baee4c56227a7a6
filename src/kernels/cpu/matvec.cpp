// c = a * B + bias + addend for one row a, where columns of B (rows of a weight) lie adjacent. The cost is reading B
// once. Lanes are columns of C, so that each sum runs over the depth one term after another as in matmul_kernels.cpp;
// four by four elements are transposed in registers on their way. bf16 goes through that in pairs. Overwrites c.
#include "kernels/cpu/matvec.h"

#undef HWY_TARGET_INCLUDE
// Scalable vectors cannot stand in arrays; processors with SVE have NEON too.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_TARGET_INCLUDE "kernels/cpu/matvec.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <algorithm>
#include <type_traits>

#include "base/threads.h"
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
namespace {

constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));
constexpr int kStrips = 2;  // of kLanes columns each, side by side: one sum alone would wait for its own additions
constexpr std::int64_t kColumns = kStrips * kLanes;

using WordTag = hn::RebindToUnsigned<FloatTag>;
using Words = hn::Vec<WordTag>;

/// 16 bytes from each of the rows 0, 4, 8, ... behind one another.
template <class D, typename T>
HWY_INLINE hn::Vec<D> load_blocks(D d, const T* const* rows, std::int64_t k) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(rows[0] + k));
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_blocks(half, rows + hn::MaxLanes(half), k), load_blocks(half, rows, k));
  }
}

/// The terms of 16 bytes of each row, in the order of k.
template <typename T>
HWY_INLINE FloatVector add_terms(const float* a, const T* const* rows, std::int64_t k, FloatVector sum) {
  const FloatTag d;
  const WordTag words;
  const hn::Repartition<std::uint64_t, WordTag> pairs;
  const Words row0 = load_blocks(words, rows, k), row1 = load_blocks(words, rows + 1, k);
  const Words row2 = load_blocks(words, rows + 2, k), row3 = load_blocks(words, rows + 3, k);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(words, row0, row1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(words, row2, row3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(words, row0, row1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(words, row2, row3));
  const Words columns[4] = {hn::BitCast(words, hn::InterleaveLower(pairs, low01, low23)),
                            hn::BitCast(words, hn::InterleaveUpper(pairs, low01, low23)),
                            hn::BitCast(words, hn::InterleaveLower(pairs, high01, high23)),
                            hn::BitCast(words, hn::InterleaveUpper(pairs, high01, high23))};
  HWY_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      const auto first = hn::BitCast(d, hn::ShiftLeft<16>(columns[i]));
      const auto second = hn::BitCast(d, hn::And(columns[i], hn::Set(words, 0xffff0000u)));
      sum = hn::MulAdd(hn::Set(d, a[k + 2 * i]), first, sum);
      sum = hn::MulAdd(hn::Set(d, a[k + 2 * i + 1]), second, sum);
    } else {
      sum = hn::MulAdd(hn::Set(d, a[k + i]), hn::BitCast(d, columns[i]), sum);
    }
  }
  return sum;
}

/// totals[kColumns] = a * the columns of B that begin at `rows`.
template <typename T>
void multiply_columns(const float* a, const T* const* rows, std::int64_t depth, std::int64_t block, float* totals) {
  constexpr std::int64_t kStep = 16 / static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  constexpr std::int64_t kLinesAhead = 8;
  const FloatTag d;
  for (std::int64_t begin = 0; begin < depth; begin += block) {
    const std::int64_t end = std::min(depth, begin + block);
    FloatVector sums[kStrips];
    for (auto& sum : sums) sum = hn::Zero(d);
    std::int64_t k = begin;
    for (; k + kStep <= end; k += kStep) {
      if (k % kLine == 0) {
        for (std::int64_t i = 0; i < kColumns; ++i) __builtin_prefetch(rows[i] + k + kLinesAhead * kLine);
      }
      HWY_UNROLL(2)
      for (int s = 0; s < kStrips; ++s) sums[s] = add_terms(a, rows + s * kLanes, k, sums[s]);
    }
    for (; k < end; ++k) {
      HWY_ALIGN float column[kColumns];
      for (std::int64_t i = 0; i < kColumns; ++i) column[i] = static_cast<float>(rows[i][k]);
      for (int s = 0; s < kStrips; ++s) {
        sums[s] = hn::MulAdd(hn::Set(d, a[k]), hn::Load(d, column + s * kLanes), sums[s]);
      }
    }
    for (int s = 0; s < kStrips; ++s) {
      float* total = totals + s * kLanes;
      hn::Store(begin == 0 ? sums[s] : hn::Add(hn::Load(d, total), sums[s]), d, total);
    }
  }
}

/// totals[0, count) += values[0, count)
void add_values(const void* values, DType dtype, std::int64_t first, std::int64_t count, float* totals) {
  if (values == nullptr) return;
  with_element_type(dtype, [&](auto* type) {
    const auto* from = static_cast<const std::remove_pointer_t<decltype(type)>*>(values) + first;
    for (std::int64_t i = 0; i < count; ++i) totals[i] += static_cast<float>(from[i]);
  });
}

template <typename T>
void multiply_row_as(const MatrixProduct& p, const float* a) {
  const auto* b = static_cast<const T*>(p.b.data);
  parallel_for((p.columns + kColumns - 1) / kColumns, [&](std::int64_t index, int) HWY_ATTR {
    const std::int64_t column = index * kColumns;
    const std::int64_t count = std::min(kColumns, p.columns - column);
    const T* rows[kColumns];  // the last one stands in for those beyond the edge
    for (std::int64_t i = 0; i < kColumns; ++i) rows[i] = b + (column + std::min(i, count - 1)) * p.b.column_stride;
    HWY_ALIGN float totals[kColumns];
    multiply_columns(a, rows, p.depth, depth_block(p.depth), totals);
    add_values(p.bias, p.bias_dtype, column, count, totals);
    add_values(p.addend, p.c_dtype, column, count, totals);
    with_element_type(p.c_dtype, [&](auto* type) HWY_ATTR {
      using C = std::remove_pointer_t<decltype(type)>;
      auto* c = static_cast<C*>(p.c) + column;
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
  });
}

}  // namespace
#endif

bool multiply_row(const MatrixProduct& p, const Scratch& scratch) {
#if HWY_TARGET == HWY_SCALAR
  (void)p;
  (void)scratch;
  return false;
#else
  if (p.rows != 1 || p.b.row_stride != 1 || p.a.column_stride != 1 ||
      static_cast<std::size_t>(p.depth) * sizeof(float) > scratch.shared_bytes) {
    return false;
  }
  if (p.b.dtype != DType::f32 && p.b.dtype != DType::bf16) return false;
  auto* a = reinterpret_cast<float*>(scratch.shared);
  with_element_type(p.a.dtype, [&](auto* type) {
    const auto* from = static_cast<const std::remove_pointer_t<decltype(type)>*>(p.a.data);
    for (std::int64_t k = 0; k < p.depth; ++k) a[k] = static_cast<float>(from[k]);
  });
  if (p.b.dtype == DType::bf16) {
    multiply_row_as<BFloat16>(p, a);
  } else {
    multiply_row_as<float>(p, a);
  }
  return true;
#endif
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {

HWY_EXPORT(multiply_row);

bool multiply_row(const MatrixProduct& product, const Scratch& scratch) {
  return HWY_DYNAMIC_DISPATCH(multiply_row)(product, scratch);
}

}  // namespace heddle::cpu
#endif
