// c = a * B + bias + addend for one row a, where columns of B (rows of a weight) lie adjacent; and the same of several
// products of one row, as one. The cost is reading B once. Lanes are columns of C, so that each sum runs over the depth
// in the order of matmul_kernels.cpp; four by four words are transposed in registers on their way: f32, or pairs of
// bf16. Quantized columns are decoded first. Overwrites c.
#include "kernels/cpu/matvec.h"

#undef HWY_TARGET_INCLUDE
// Scalable vectors cannot stand in arrays; processors with SVE have NEON too.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_TARGET_INCLUDE "kernels/cpu/matvec.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "kernels/cpu/bf16_dot-inl.h"
#include "kernels/cpu/matvec_amx-inl.h"
#include "kernels/cpu/matvec_strips-inl.h"
#include "kernels/cpu/quantized.h"
#include "kernels/cpu/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
namespace {

/// In what order the terms of a sum are added: that of the depth, or in pairs the second first, as in matmul.h. Or by
/// the instruction for pairs of bf16, in its own way.
enum class Terms { in_order, in_pairs, by_dot };

/// The terms of 16 bytes of each row.
template <typename T, Terms kTerms>
HWY_INLINE FloatVector add_terms(const float* a, const T* const* rows, std::int64_t k, FloatVector sum) {
  const FloatTag d;
  const WordTag words;
  Words columns[4];
  load_transposed(rows, k, columns);
  HWY_UNROLL(4)
  for (int i = 0; i < 4; ++i) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      const auto first = hn::BitCast(d, hn::ShiftLeft<16>(columns[i]));
      const auto second = hn::BitCast(d, hn::And(columns[i], hn::Set(words, 0xffff0000u)));
      if constexpr (kTerms == Terms::in_order) sum = hn::MulAdd(hn::Set(d, a[k + 2 * i]), first, sum);
      sum = hn::MulAdd(hn::Set(d, a[k + 2 * i + 1]), second, sum);
      if constexpr (kTerms == Terms::in_pairs) sum = hn::MulAdd(hn::Set(d, a[k + 2 * i]), first, sum);
    } else {
      sum = hn::MulAdd(hn::Set(d, a[k + i]), hn::BitCast(d, columns[i]), sum);
    }
  }
  return sum;
}

/// The terms of one element of each row.
template <typename T>
HWY_INLINE void add_element(const float* a, const T* const* rows, std::int64_t k, FloatVector* sums) {
  const FloatTag d;
  HWY_ALIGN float column[kColumns];
  for (std::int64_t i = 0; i < kColumns; ++i) column[i] = static_cast<float>(rows[i][k]);
  for (int s = 0; s < kStrips; ++s) {
    sums[s] = hn::MulAdd(hn::Set(d, a[k]), hn::Load(d, column + s * kLanes), sums[s]);
  }
}

/// totals[kColumns] (+)= sums
HWY_INLINE void store_sums(const FloatVector* sums, bool add, float* totals) {
  const FloatTag d;
  for (int s = 0; s < kStrips; ++s) {
    float* total = totals + s * kLanes;
    hn::Store(add ? hn::Add(hn::Load(d, total), sums[s]) : sums[s], d, total);
  }
}

/// At each step of 16 bytes of each row.
template <typename T>
HWY_INLINE void prefetch_step(const T* const* rows, std::int64_t k, Prefetcher& prefetcher) {
  prefetcher.bring_coming(kColumns * 16 / Prefetcher::kLine);
  if (k * static_cast<std::int64_t>(sizeof(T)) % Prefetcher::kLine != 0) return;
  for (std::int64_t i = 0; i < kColumns; ++i) prefetcher.bring_row(rows[i] + k);
}

/// totals[kColumns] (+)= the terms begin to end of a * the columns of B that begin at `rows`, one block of depth.
template <typename T, Terms kTerms>
void multiply_columns(const float* a, const T* const* rows, std::int64_t begin, std::int64_t end,
                      Prefetcher& prefetcher, bool add, float* totals) {
  constexpr std::int64_t kStep = 16 / static_cast<std::int64_t>(sizeof(T));
  FloatVector sums[kStrips];
  for (auto& sum : sums) sum = hn::Zero(FloatTag());
  std::int64_t k = begin;
  for (; k + kStep <= end; k += kStep) {
    prefetch_step(rows, k, prefetcher);
    HWY_UNROLL(8)
    for (int s = 0; s < kStrips; ++s) sums[s] = add_terms<T, kTerms>(a, rows + s * kLanes, k, sums[s]);
  }
  if constexpr (kTerms == Terms::in_pairs) {
    for (; k + 2 <= end; k += 2) {
      add_element(a, rows, k + 1, sums);
      add_element(a, rows, k, sums);
    }
  }
  for (; k < end; ++k) add_element(a, rows, k, sums);
  store_sums(sums, add, totals);
}

}  // namespace

#if HEDDLE_HAS_BF16_DOT
}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
HEDDLE_BF16_DOT_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace {

/// As multiply_columns in pairs; `a` holds pairs of bf16, with zeros behind the end that fill its last word.
void multiply_columns_by_dot(const float* a, const BFloat16* const* rows, std::int64_t begin, std::int64_t end,
                             Prefetcher& prefetcher, bool add, float* totals) {
  const FloatTag d;
  FloatVector sums[kStrips];
  for (auto& sum : sums) sum = hn::Zero(d);
  std::int64_t k = begin;
  for (; k + 8 <= end; k += 8) {
    prefetch_step(rows, k, prefetcher);
    HWY_UNROLL(8)
    for (int s = 0; s < kStrips; ++s) {
      Words columns[4];
      load_transposed(rows + s * kLanes, k, columns);
      HWY_UNROLL(4)
      for (int i = 0; i < 4; ++i)
        sums[s] = add_pairs(broadcast_pair(a + k / 2 + i), hn::BitCast(d, columns[i]), sums[s]);
    }
  }
  for (; k < filled_depth(end); k += 2) {  // blocks begin at whole words
    alignas(64) std::uint32_t column[kColumns];
    for (std::int64_t i = 0; i < kColumns; ++i) {
      const auto bits = [&](std::int64_t at) { return at < end ? std::uint32_t{rows[i][at].bits} : 0u; };
      column[i] = bits(k) | bits(k + 1) << 16;
    }
    for (int s = 0; s < kStrips; ++s) {
      const auto pairs = hn::BitCast(d, hn::Load(WordTag(), column + s * kLanes));
      sums[s] = add_pairs(broadcast_pair(a + k / 2), pairs, sums[s]);
    }
  }
  store_sums(sums, add, totals);
}

/// sums (+)= the terms of `pairs` pairs of decoded columns, a vector of columns in each of `values`.
template <int kVectors>
void add_decoded_by_dot(const float* a, const float* const* values, std::int64_t pairs, FloatVector* sums) {
  const FloatTag d;
  FloatVector sum[kVectors];
  for (int v = 0; v < kVectors; ++v) sum[v] = sums[v];
  for (std::int64_t e = 0; e < pairs; ++e) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      const float* from = values[v] + 2 * e * kLanes;
      sum[v] = add_pairs(broadcast_pair(a + e), hn::BitCast(d, pairs_of(from, from + kLanes)), sum[v]);
    }
  }
  for (int v = 0; v < kVectors; ++v) sums[v] = sum[v];
}

}  // namespace
}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
#endif
namespace {

template <typename T, typename MultiplyColumns>
void multiply_row_as(Products products, Weights coming, const float* a, const MultiplyColumns& multiply) {
  constexpr std::int64_t kSize = static_cast<std::int64_t>(sizeof(T));
  const std::int64_t depth = products[0].depth, block = depth_block(depth);
  const std::int64_t ahead = Prefetcher::strips_ahead(kColumns * products[0].b.column_stride * kSize);
  const auto run = [&](const Strip& strip, const std::byte* near, float* totals) HWY_ATTR {
    const T* rows[kColumns];  // the last one stands in for those beyond the edge
    for (std::int64_t i = 0; i < kColumns; ++i) {
      rows[i] = column_of<T>(*strip.product, strip.column + std::min(i, strip.count - 1));
    }
    Prefetcher prefetcher(near, ahead);
    for (std::int64_t k = 0; k < depth; k += block) {
      multiply(a, rows, k, std::min(depth, k + block), prefetcher, k > 0, totals);
    }
  };
  for_each_strip<kColumns, 2>(products, coming, ahead, run);
}

/// As many as fill up any word of packed factors.
constexpr std::int64_t kZerosBehind = 3;

/// sums (+)= the terms of `depth` decoded elements from k on, of kVectors vectors of columns.
template <Terms kTerms, int kVectors>
HWY_INLINE void add_decoded(const float* a, std::int64_t k, std::int64_t depth, float* values, FloatVector* sums) {
  const FloatTag d;
  constexpr std::int64_t kStride = kDecodedDepth * kLanes;
#if HEDDLE_HAS_BF16_DOT
  if constexpr (kTerms == Terms::by_dot) {
    const float* of_vector[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      of_vector[v] = values + v * kStride;
      for (std::int64_t e = depth; e < filled_depth(depth); ++e) {
        hn::Store(hn::Zero(d), d, values + v * kStride + e * kLanes);
      }
    }
    return add_decoded_by_dot<kVectors>(a + k / 2, of_vector, filled_depth(depth) / 2, sums);
  }
#endif
  const auto add_element = [&](std::int64_t e) HWY_ATTR {
    const FloatVector element = hn::Set(d, a[k + e]);
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      auto value = hn::Load(d, values + v * kStride + e * kLanes);
      if constexpr (kTerms == Terms::in_pairs) value = round_to_bf16(d, value);
      sums[v] = hn::MulAdd(element, value, sums[v]);
    }
  };
  std::int64_t e = 0;
  if constexpr (kTerms == Terms::in_pairs) {
    for (; e + 2 <= depth; e += 2) {
      add_element(e + 1);
      add_element(e);
    }
  }
  for (; e < depth; ++e) add_element(e);
}

/// Columns of a quantized B are decoded into the first-level cache, some elements of each at a time, and multiplied
/// from there. Several vectors of sums, so that none waits for its own. In pairs they are rounded to bf16.
template <Terms kTerms>
void multiply_row_decoded(Products products, const float* a) {
  constexpr int kVectors = 4;
  constexpr std::int64_t kCount = kVectors * kLanes, kDepth = kDecodedDepth;
  const FloatTag d;
  const DecodeColumns decode_columns = quantized_column_decoder(products[0].b.dtype);
  const std::int64_t all = products[0].depth, block = depth_block(all), steps = (all + kDepth - 1) / kDepth;
  for_each_strip<kCount, 4>(products, {}, 0, [&](const Strip& strip, const std::byte*, float* totals) HWY_ATTR {
    const auto& [p, column, count] = strip;
    const MatrixOperand& b = p->b;
    const QuantizedTensor tensor = {b.dtype, static_cast<const std::byte*>(b.data), b.elements};
    HWY_ALIGN float values[kVectors][kDepth * kLanes] = {};
    NextColumns next(b, column, kCount, steps);
    for (std::int64_t begin = 0; begin < all; begin += block) {
      const std::int64_t end = std::min(all, begin + block);
      FloatVector sums[kVectors];
      for (auto& sum : sums) sum = hn::Zero(d);
      for (std::int64_t k = begin; k < end;) {
        const std::int64_t depth = std::min(kDepth - k % kDepth, end - k);
        next.prefetch();
        for (std::int64_t v = 0; v * kLanes < count; ++v) {
          decode_columns(tensor, b.first + (column + v * kLanes) * b.column_stride + k, b.column_stride,
                         std::min(kLanes, count - v * kLanes), depth, values[v]);
        }
        add_decoded<kTerms, kVectors>(a, k, depth, values[0], sums);
        k += depth;
      }
      for (std::int64_t v = 0; v < kVectors; ++v) {
        float* total = totals + v * kLanes;
        hn::Store(begin > 0 ? hn::Add(hn::Load(d, total), sums[v]) : sums[v], d, total);
      }
    }
  });
}

/// The row a in scratch as elements of To, rounded to Rounded on the way; zeros behind it.
template <typename To, typename Rounded = To>
const float* copy_row(const MatrixProduct& p, const Scratch& scratch) {
  auto* a = reinterpret_cast<To*>(scratch.shared);
  std::fill_n(a + p.depth, kZerosBehind, To(0.0f));
  if (p.a.dtype == DTypeOf<To>::value && std::is_same_v<To, Rounded>) {
    std::memcpy(a, p.a.data, static_cast<std::size_t>(p.depth) * sizeof(To));
    return reinterpret_cast<const float*>(a);
  }
  with_element_type(p.a.dtype, [&](auto* type) {
    const auto* from = static_cast<const std::remove_pointer_t<decltype(type)>*>(p.a.data);
    for (std::int64_t k = 0; k < p.depth; ++k) {
      a[k] = static_cast<To>(static_cast<float>(Rounded(static_cast<float>(from[k]))));
    }
  });
  return reinterpret_cast<const float*>(a);
}

}  // namespace
#endif

#if HWY_TARGET != HWY_SCALAR
namespace {

bool multiplies_in_bf16(const MatrixProduct& p) {
  return p.compute_dtype == DType::bf16 || (p.a.dtype == DType::bf16 && p.b.dtype == DType::bf16);
}

bool has_form_of_row(const MatrixProduct& p, const Scratch& scratch) {
  if (p.rows != 1 || p.b.row_stride != 1 || p.a.column_stride != 1 || p.depth_block != 0 || p.starts_at_c ||
      static_cast<std::size_t>(p.depth + kZerosBehind) * sizeof(float) > scratch.shared_bytes) {
    return false;
  }
  if (is_quantized(p.b.dtype)) return p.b.column_stride > 0;
  if (p.b.dtype == DType::f32) return !multiplies_in_bf16(p);  // else it has to be rounded on the way
  return p.b.dtype == DType::bf16;
}

/// Whether two products take the same row the same way through weights of one kind.
bool is_alike(const MatrixProduct& p, const MatrixProduct& q) {
  return p.a.data == q.a.data && p.a.dtype == q.a.dtype && p.depth == q.depth && p.compute_dtype == q.compute_dtype &&
         p.b.dtype == q.b.dtype && p.b.column_stride == q.b.column_stride;
}

}  // namespace
#endif

bool multiply_row(std::span<const MatrixProduct> products, const Scratch& scratch, std::span<const TensorView> coming) {
#if HWY_TARGET == HWY_SCALAR
  (void)products;
  (void)scratch;
  (void)coming;
  return false;
#else
  const MatrixProduct& p = products[0];
  for (const MatrixProduct& each : products) {
    if (!has_form_of_row(each, scratch) || !is_alike(each, p)) return false;
  }
  const bool quantized = is_quantized(p.b.dtype), in_bf16 = multiplies_in_bf16(p);
#if HEDDLE_HAS_AMX_ROWS
  if (in_bf16 && amx_tiles() == AmxTiles::processor) {
    return multiply_row_by_amx<AmxRegisters>(products, quantized, scratch, coming);
  }
  if (in_bf16 && amx_tiles() == AmxTiles::emulated) {
    return multiply_row_by_amx<EmulatedAmxRegisters>(products, quantized, scratch, coming);
  }
#endif
#if HEDDLE_HAS_BF16_DOT
  if (in_bf16 && uses_bf16_dot()) {
    const float* a = copy_row<BFloat16>(p, scratch);
    if (quantized) {
      multiply_row_decoded<Terms::by_dot>(products, a);
    } else {
      multiply_row_as<BFloat16>(products, coming, a, multiply_columns_by_dot);
    }
    return true;
  }
#endif
  const float* a = in_bf16 ? copy_row<float, BFloat16>(p, scratch) : copy_row<float>(p, scratch);
  if (quantized) {
    in_bf16 ? multiply_row_decoded<Terms::in_pairs>(products, a) : multiply_row_decoded<Terms::in_order>(products, a);
  } else if (p.b.dtype == DType::bf16) {
    multiply_row_as<BFloat16>(
        products, coming, a,
        in_bf16 ? multiply_columns<BFloat16, Terms::in_pairs> : multiply_columns<BFloat16, Terms::in_order>);
  } else {
    multiply_row_as<float>(products, coming, a, multiply_columns<float, Terms::in_order>);
  }
  return true;
#endif
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {

HWY_EXPORT(multiply_row);

bool multiply_row(std::span<const MatrixProduct> products, const Scratch& scratch, std::span<const TensorView> coming) {
  return HWY_DYNAMIC_DISPATCH(multiply_row)(products, scratch, coming);
}

}  // namespace heddle::cpu
#endif
