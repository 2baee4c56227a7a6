// Products of tiles that lie in scratch, for attention.cpp and attention_backward.cpp: the terms that they are made of,
// by the type of attention's operands and what the processor has. Per-target include guard, as Highway's own -inl.h
// files.
//
// For each kind of terms:
//   kDepth           so many terms lie together in a word of an operand: of adjacent elements of a row in rows and
//                    transposed tiles, of adjacent rows in pairs of rows. What lacks in the last word is zero
//   load_rows        rows of a head as rows of words
//   load_row_pairs   the same as pairs of rows
//   round            what becomes of sums [count][kTile], in the given lanes, that the next product takes: pairs of
//   rows round_rows       the same as rows of words, written to `to` multiply         a block of a product that the
//   registers hold
#if defined(HEDDLE_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H_
#undef HEDDLE_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H_
#else
#define HEDDLE_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/attention_tiles-inl.h"
#include "kernels/cpu/bf16_dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// How a(r, k) lies in memory: rows apart by `stride` and steps adjacent, or the other way round.
enum class Left { row_major, column_major };
/// What becomes of a product: it overwrites, is added, or is added to what was there times factor[lane].
enum class Into { overwrite, add, add_to_scaled };

/// Operands of a product of tiles: c[r][l] (into) sum over k of a(r, k) * b[k][l]. The sum starts at 0 and goes through
/// the steps k in order, whatever the blocking: so a lane's bits depend on its operands alone. Strides and steps count
/// words.
struct TileProduct {
  const float* a;
  std::int64_t a_stride;
  const float* b;
  std::int64_t b_stride;
  std::int64_t steps;
  float* c;
  std::int64_t c_stride;
  Into into = Into::overwrite;
  const float* factor = nullptr;

  template <Left kLeft>
  std::int64_t row_step() const {
    return kLeft == Left::row_major ? a_stride : 1;
  }
  template <Left kLeft>
  std::int64_t depth_step() const {
    return kLeft == Left::row_major ? 1 : a_stride;
  }
  /// The part for the rows from `row` and the lanes from `lane` on.
  template <Left kLeft>
  TileProduct from(std::int64_t row, std::int64_t lane) const {
    TileProduct part = *this;
    part.a += row * row_step<kLeft>();
    part.b += lane;
    part.c += row * c_stride + lane;
    if (into == Into::add_to_scaled) part.factor += lane;
    return part;
  }
};

template <int kRows, int kVectors>
HWY_INLINE void clear_sums(FloatVector (&sums)[kRows][kVectors]) {
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(16)
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(FloatTag());
  }
}

template <int kRows, int kVectors>
HWY_INLINE void store_sums(const TileProduct& p, FloatVector (&sums)[kRows][kVectors]) {
  const FloatTag d;
  constexpr std::int64_t lanes = hn::MaxLanes(FloatTag());
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(16)
    for (int v = 0; v < kVectors; ++v) {
      float* to = p.c + r * p.c_stride + v * lanes;
      if (p.into == Into::add) {
        sums[r][v] = hn::Add(hn::LoadU(d, to), sums[r][v]);
      } else if (p.into == Into::add_to_scaled) {
        sums[r][v] = hn::MulAdd(hn::LoadU(d, to), hn::LoadU(d, p.factor + v * lanes), sums[r][v]);
      }
      hn::StoreU(sums[r][v], d, to);
    }
  }
}

/// sums += the terms of one step.
template <int kRows, int kVectors>
HWY_INLINE void add_terms(const float* HWY_RESTRICT a, std::int64_t row_step, const float* HWY_RESTRICT b,
                          FloatVector (&sums)[kRows][kVectors]) {
  const FloatTag d;
  constexpr std::int64_t lanes = hn::MaxLanes(FloatTag());
  FloatVector right[kVectors];
  HWY_UNROLL(16)
  for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + v * lanes);
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    const auto left = hn::Set(d, a[r * row_step]);
    HWY_UNROLL(16)
    for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(left, right[v], sums[r][v]);
  }
}

/// Words are f32.
struct SingleTerms {
  static constexpr std::int64_t kDepth = 1;

  static void load_rows(const TensorView& x, std::int64_t begin, std::int64_t count, std::int64_t head, float factor,
                        float* to, std::int64_t padded) {
    cpu::HWY_NAMESPACE::load_rows(x, begin, count, head, factor, to, padded);
  }
  static void load_row_pairs(const TensorView& x, std::int64_t begin, std::int64_t count, std::int64_t head,
                             float factor, float* to, std::int64_t padded) {
    load_rows(x, begin, count, head, factor, to, padded);
  }
  static void round_rows(const float*, std::int64_t, std::int64_t, std::int64_t, std::int64_t, float*) {}
};

/// Terms of f32, one FMA each.
struct OrderedTerms : SingleTerms {
  static void round(float*, std::int64_t, std::int64_t, std::int64_t) {}

  template <Left kLeft, int kRows, int kVectors>
  static HWY_INLINE void multiply(const TileProduct& p) {
    FloatVector sums[kRows][kVectors];
    clear_sums(sums);
    const float *a = p.a, *b = p.b;
    for (std::int64_t k = 0; k < p.steps; ++k) {
      add_terms(a, p.row_step<kLeft>(), b, sums);
      a += p.depth_step<kLeft>();
      b += p.b_stride;
    }
    store_sums(p, sums);
  }
};

/// Terms of bf16 where no instruction multiplies them: the second of each pair first, as PairSum::one_by_one.
struct PairedTerms : SingleTerms {
  static void round(float* tile, std::int64_t count, std::int64_t lane_begin, std::int64_t lane_end) {
    const FloatTag d;
    for (std::int64_t row = 0; row < count; ++row, tile += kTile) {
      for (std::int64_t lane = lane_begin; lane < lane_end; lane += float_lanes()) {
        hn::StoreU(round_to_bf16(d, hn::LoadU(d, tile + lane)), d, tile + lane);
      }
    }
  }

  template <Left kLeft, int kRows, int kVectors>
  static HWY_INLINE void multiply(const TileProduct& p) {
    FloatVector sums[kRows][kVectors];
    clear_sums(sums);
    const float *a = p.a, *b = p.b;
    std::int64_t k = 0;
    for (; k + 2 <= p.steps; k += 2) {
      add_terms(a + p.depth_step<kLeft>(), p.row_step<kLeft>(), b + p.b_stride, sums);
      add_terms(a, p.row_step<kLeft>(), b, sums);
      a += 2 * p.depth_step<kLeft>();
      b += 2 * p.b_stride;
    }
    if (k < p.steps) add_terms(a, p.row_step<kLeft>(), b, sums);
    store_sums(p, sums);
  }
};

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HEDDLE_HAS_BF16_DOT
HEDDLE_BF16_DOT_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// Pairs of bf16, each a word of 32 bits with the first term in the lower half.
struct DotTerms {
  static constexpr std::int64_t kDepth = 2;

  static const BFloat16* first_row(const TensorView& x, std::int64_t begin, std::int64_t head) {
    return x.as<const BFloat16>() + (begin * x.shape[1] + head) * x.shape[2];
  }
  /// Zeros behind the columns. Brings the row of the next tile near.
  static HWY_INLINE void copy_row(const BFloat16* from, std::int64_t stride, std::int64_t columns, BFloat16* to,
                                  std::int64_t padded) {
    const hn::Repartition<std::uint16_t, FloatTag> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    std::int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      hwy::Prefetch(from + kTile * stride + c);
      hn::StoreU(hn::LoadU(d, &from[c].bits), d, &to[c].bits);
    }
    for (; c < columns; ++c) to[c] = from[c];
    std::fill(to + c, to + padded, BFloat16());
  }
  /// The pairs lie in the rows already.
  static void load_rows(const TensorView& x, std::int64_t begin, std::int64_t count, std::int64_t head, float,
                        float* to, std::int64_t padded) {
    const std::int64_t columns = x.shape[2], stride = x.shape[1] * columns, row_words = padded / 2;
    const BFloat16* from = first_row(x, begin, head);
    for (std::int64_t r = 0; r < count; ++r, from += stride, to += row_words) {
      copy_row(from, stride, columns, reinterpret_cast<BFloat16*>(to), padded);
    }
    for (; count % 4 != 0; ++count, to += row_words) std::fill(to, to + row_words, 0.0f);
  }
  static void load_row_pairs(const TensorView& x, std::int64_t begin, std::int64_t count, std::int64_t head, float,
                             float* to, std::int64_t padded) {
    const WordTag d;
    const hn::Rebind<std::uint16_t, WordTag> halves;
    const std::int64_t columns = x.shape[2], stride = x.shape[1] * columns;
    const BFloat16* from = first_row(x, begin, head);
    auto* pairs = reinterpret_cast<std::uint32_t*>(to);
    for (std::int64_t r = 0; r < count; r += 2, from += 2 * stride, pairs += padded) {
      const BFloat16* next = r + 1 < count ? from + stride : nullptr;
      std::int64_t c = 0;
      for (; c + float_lanes() <= columns; c += float_lanes()) {
        auto pair = hn::PromoteTo(d, hn::LoadU(halves, &from[c].bits));
        if (next != nullptr) pair = hn::Or(pair, hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(halves, &next[c].bits))));
        hn::StoreU(pair, d, pairs + c);
      }
      for (; c < columns; ++c) {
        pairs[c] = from[c].bits | (next == nullptr ? 0u : std::uint32_t{next[c].bits} << 16);
      }
      std::fill(pairs + c, pairs + padded, 0u);
    }
  }
  /// In place: the rows of a pair become one.
  static void round(float* tile, std::int64_t count, std::int64_t lane_begin, std::int64_t lane_end) {
    alignas(64) static constexpr float kZeros[kTile] = {};
    for (std::int64_t row = 0; row < count; row += 2) {
      const float *first = tile + row * kTile, *second = row + 1 < count ? first + kTile : kZeros;
      auto* pairs = reinterpret_cast<std::uint32_t*>(tile + row / 2 * kTile);
      for (std::int64_t lane = lane_begin; lane < lane_end; lane += float_lanes()) {
        hn::StoreU(pairs_of(first + lane, second + lane), WordTag(), pairs + lane);
      }
    }
  }
  static void round_rows(const float* tile, std::int64_t row_begin, std::int64_t row_end, std::int64_t lane_begin,
                         std::int64_t lane_end, float* to) {
    for (std::int64_t row = row_begin; row < row_end; ++row) {
      auto* halves = reinterpret_cast<BFloat16*>(to) + row * kTile;
      for (std::int64_t lane = lane_begin; lane < lane_end; lane += float_lanes()) {
        store_halves(tile + row * kTile + lane, halves + lane);
      }
    }
  }

  template <Left kLeft, int kRows, int kVectors>
  static void multiply(const TileProduct& p) {
    const FloatTag d;
    constexpr std::int64_t lanes = hn::MaxLanes(FloatTag());
    FloatVector sums[kRows][kVectors];
    clear_sums(sums);
    const float *a = p.a, *b = p.b;
    const std::int64_t row_step = p.row_step<kLeft>(), depth_step = p.depth_step<kLeft>(), b_stride = p.b_stride;
    for (std::int64_t k = 0; k < p.steps; ++k) {
      FloatVector right[kVectors];
      HWY_UNROLL(16)
      for (int v = 0; v < kVectors; ++v) right[v] = hn::LoadU(d, b + v * lanes);
      HWY_UNROLL(16)
      for (int r = 0; r < kRows; ++r) {
        const auto left = broadcast_pair(a + r * row_step);
        HWY_UNROLL(16)
        for (int v = 0; v < kVectors; ++v) sums[r][v] = add_pairs(left, right[v], sums[r][v]);
      }
      a += depth_step;
      b += b_stride;
    }
    store_sums(p, sums);
  }
};

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // HEDDLE_HAS_BF16_DOT

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// Words that hold `terms`.
template <class Terms>
constexpr std::int64_t words(std::int64_t terms) {
  return (terms + Terms::kDepth - 1) / Terms::kDepth;
}

/// Calls f(the terms of attention now).
template <typename Function>
void with_terms(bool in_bf16, const Function& f) {
  if (!in_bf16) return f(OrderedTerms());
#if HEDDLE_HAS_BF16_DOT
  if (uses_bf16_dot()) return f(DotTerms());
#endif
  f(PairedTerms());
}

/// Rows and vectors of a register block: 6 x 4 sums, 4 right operands and a left one in 32 registers; 6 x 2 in 16. A
/// single vector goes with 12 rows, since a multiply-add waits for the one before on the same sum.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SCALAR
inline constexpr int kBlockVectors = 2;
#else
inline constexpr int kBlockVectors = 4;
#endif

template <class Terms, Left kLeft, int kVectors>
HWY_INLINE void product_columns(const TileProduct& p, std::int64_t rows, std::int64_t lane) {
  std::int64_t r = 0;
  const auto block = [&](auto block_rows) {
    constexpr int kRows = decltype(block_rows)::value;
    Terms::template multiply<kLeft, kRows, kVectors>(p.from<kLeft>(r, lane));
    r += kRows;
  };
  // NOLINTBEGIN(bugprone-infinite-loop): block() advances r, which the check does not see.
  if constexpr (kVectors == 1) {
    while (r + 12 <= rows) block(std::integral_constant<int, 12>());
  }
  while (r + 6 <= rows) block(std::integral_constant<int, 6>());
  while (r + 4 <= rows) block(std::integral_constant<int, 4>());
  while (r + 2 <= rows) block(std::integral_constant<int, 2>());
  // NOLINTEND(bugprone-infinite-loop)
  if (r < rows) block(std::integral_constant<int, 1>());
}

/// The product for `rows` rows and the lanes [lane_begin, lane_end), multiples of the vector's.
template <class Terms, Left kLeft>
void product(const TileProduct& p, std::int64_t rows, std::int64_t lane_begin, std::int64_t lane_end) {
  const std::int64_t lanes = float_lanes();
  std::int64_t lane = lane_begin;
  for (; lane + kBlockVectors * lanes <= lane_end; lane += kBlockVectors * lanes) {
    product_columns<Terms, kLeft, kBlockVectors>(p, rows, lane);
  }
  for (; lane < lane_end; lane += lanes) product_columns<Terms, kLeft, 1>(p, rows, lane);
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
