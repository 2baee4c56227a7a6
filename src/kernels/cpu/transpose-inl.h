// Bytes of several rows as vectors whose lanes are the rows. Per-target include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_TRANSPOSE_INL_H_
#undef HEDDLE_KERNELS_CPU_TRANSPOSE_INL_H_
#else
#define HEDDLE_KERNELS_CPU_TRANSPOSE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR

using Words = hn::Vec<WordTag>;

/// 16 bytes from each of the rows `first`, first + 4, first + 8, ... behind one another.
template <class D, class Rows>
HWY_INLINE hn::Vec<D> load_blocks(D d, const Rows& rows, std::size_t first, std::int64_t k) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(rows[first] + k));
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_blocks(half, rows, first + hn::MaxLanes(half), k), load_blocks(half, rows, first, k));
  }
}

/// columns[j] = the word j of the 16 bytes that begin at element k of each row, a row a lane. `rows[i]` is where row i
/// begins; there are as many as lanes.
template <class D, class Rows>
HWY_INLINE void load_transposed(D words, const Rows& rows, std::int64_t k, hn::Vec<D>* columns) {
  const hn::Repartition<std::uint64_t, D> pairs;
  const auto row0 = load_blocks(words, rows, 0, k), row1 = load_blocks(words, rows, 1, k);
  const auto row2 = load_blocks(words, rows, 2, k), row3 = load_blocks(words, rows, 3, k);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(words, row0, row1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(words, row2, row3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(words, row0, row1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(words, row2, row3));
  columns[0] = hn::BitCast(words, hn::InterleaveLower(pairs, low01, low23));
  columns[1] = hn::BitCast(words, hn::InterleaveUpper(pairs, low01, low23));
  columns[2] = hn::BitCast(words, hn::InterleaveLower(pairs, high01, high23));
  columns[3] = hn::BitCast(words, hn::InterleaveUpper(pairs, high01, high23));
}

template <class Rows>
HWY_INLINE void load_transposed(const Rows& rows, std::int64_t k, Words* columns) {
  load_transposed(WordTag(), rows, k, columns);
}

#endif
}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
