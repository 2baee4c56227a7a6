// Products of one row by AMX, with the bits of matmul_bf16_amx-inl.h: a product has the same terms whichever of its
// factors is a tile's row. Columns of B as they lie are rows of a tile; decoded ones are its columns. Per-target
// include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_MATVEC_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_MATVEC_AMX_INL_H_
#undef HEDDLE_KERNELS_CPU_MATVEC_AMX_INL_H_
#else
#define HEDDLE_KERNELS_CPU_MATVEC_AMX_INL_H_
#endif

#include "kernels/cpu/amx_registers.h"
#include "kernels/cpu/bf16_dot-inl.h"
#include "kernels/cpu/matvec_strips-inl.h"

#undef HEDDLE_HAS_AMX_ROWS
#if HEDDLE_HAS_BF16_DOT && HEDDLE_AMX
#define HEDDLE_HAS_AMX_ROWS 1

HEDDLE_BF16_DOT_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

/// Words of the row `a` with its blocks of depth filled up.
inline std::int64_t amx_row_words(std::int64_t depth) {
  const std::int64_t block = depth_block(depth);
  return depth / block * amx_words(block) + amx_words(depth % block);
}

/// The row a in scratch, rounded to bf16, each block of depth filled up with zeros to whole steps.
inline const DotWord* copy_row_in_steps(const MatrixProduct& p, const Scratch& scratch) {
  const std::int64_t block = depth_block(p.depth);
  auto* to = reinterpret_cast<BFloat16*>(scratch.shared);
  std::fill_n(to, 2 * amx_row_words(p.depth), BFloat16());
  with_element_type(p.a.dtype, [&](auto* type) {
    const auto* from = static_cast<const std::remove_pointer_t<decltype(type)>*>(p.a.data);
    for (std::int64_t begin = 0; begin < p.depth; begin += block, to += 2 * amx_words(block)) {
      for (std::int64_t k = begin; k < std::min(p.depth, begin + block); ++k) {
        to[k - begin] = BFloat16(static_cast<float>(from[k]));
      }
    }
  });
  return reinterpret_cast<const DotWord*>(scratch.shared);
}

/// totals[0, kColumns) (+)= sums
HWY_INLINE void add_block(const float* sums, bool add, float* totals) {
  const FloatTag d;
  for (std::int64_t i = 0; i < kColumns; i += kLanes) {
    const auto sum = hn::Load(d, sums + i);
    hn::Store(add ? hn::Add(hn::Load(d, totals + i), sum) : sum, d, totals + i);
  }
}

/// totals[kColumns] = a * the columns of a strip.
template <class Registers>
void multiply_columns_by_amx(const DotWord* a, const Strip& strip, Prefetcher prefetcher, float* totals) {
  static_assert(kColumns == kAmxRows);
  const AmxScope<Registers> scope(
      AmxConfig().set(0, kAmxRows, 4).set(1, kAmxRows, kAmxRowBytes).set(2, kAmxRowWords, 4));
  const std::int64_t stride = strip.product->b.column_stride;
  const auto* columns = column_of<BFloat16>(*strip.product, strip.column);
  const std::int64_t depth = strip.product->depth, block = depth_block(depth);
  for (std::int64_t begin = 0; begin < depth; begin += block) {
    const std::int64_t end = std::min(depth, begin + block);
    Registers::template zero<0>();
    for (std::int64_t k = begin; k < end; k += kAmxDepth, a += kAmxRowWords) {
      const std::int64_t terms = std::min(kAmxDepth, end - k);
      prefetcher.bring_coming(kColumns * kAmxRowBytes / Prefetcher::kLine);
      for (std::int64_t i = 0; i < strip.count; ++i) prefetcher.bring_row(columns + i * stride + k);
      Registers::template load<2>(a, 4);
      if (strip.count == kColumns && terms == kAmxDepth) {
        Registers::template load<1>(columns + k, stride * static_cast<std::int64_t>(sizeof(BFloat16)));
      } else {  // what lies behind belongs to others
        alignas(64) BFloat16 filled[kAmxRows][kAmxDepth] = {};
        for (std::int64_t i = 0; i < strip.count; ++i) std::copy_n(columns + i * stride + k, terms, filled[i]);
        Registers::template load<1>(filled, kAmxRowBytes);
      }
      Registers::template multiply<0, 1, 2>();
    }
    alignas(64) float sums[kColumns];
    Registers::template store<0>(sums, 4);
    add_block(sums, begin > 0, totals);
  }
}

/// The same of quantized columns.
template <class Registers>
void multiply_decoded_by_amx(const DotWord* a, const Strip& strip, DecodeColumns decode, float* totals) {
  static_assert(kColumns == kAmxColumns && kLanes == kColumns && kDecodedDepth % kAmxDepth == 0);
  const AmxScope<Registers> scope(
      AmxConfig().set(0, 1, kAmxRowBytes).set(1, 1, kAmxRowBytes).set(2, kAmxRowWords, kAmxRowBytes));
  const MatrixOperand& b = strip.product->b;
  const QuantizedTensor tensor = {b.dtype, static_cast<const std::byte*>(b.data), b.elements};
  const std::int64_t first = b.first + strip.column * b.column_stride;
  const std::int64_t depth = strip.product->depth, block = depth_block(depth);
  alignas(64) float values[kDecodedDepth * kLanes] = {};
  alignas(64) DotWord words[kAmxRowWords][kAmxColumns];
  NextColumns next(b, strip.column, kColumns,
                   (depth + block - 1) / block * ((block + kDecodedDepth - 1) / kDecodedDepth));
  for (std::int64_t begin = 0; begin < depth; begin += block) {
    const std::int64_t end = std::min(depth, begin + block);
    Registers::template zero<0>();
    for (std::int64_t k = begin; k < end; k += kDecodedDepth) {
      const std::int64_t terms = std::min(kDecodedDepth, end - k);
      next.prefetch();
      for (std::int64_t done = 0; done < terms;) {
        const std::int64_t there = std::min(kDecodedDepth - (first + k + done) % kDecodedDepth, terms - done);
        decode(tensor, first + k + done, b.column_stride, strip.count, there, values + done * kLanes);
        done += there;
      }
      const std::int64_t steps = amx_words(terms) / kAmxRowWords;
      std::fill(values + terms * kLanes, values + steps * kAmxDepth * kLanes, 0.0f);
      for (std::int64_t step = 0; step < steps; ++step, a += kAmxRowWords) {
        const float* from = values + step * kAmxDepth * kLanes;
        for (std::int64_t i = 0; i < kAmxRowWords; ++i, from += 2 * kLanes) {
          hn::Store(pairs_of(from, from + kLanes), WordTag(), words[i]);
        }
        Registers::template load<1>(a, kAmxRowBytes);
        Registers::template load<2>(words, kAmxRowBytes);
        Registers::template multiply<0, 1, 2>();
      }
    }
    alignas(64) float sums[kColumns];
    Registers::template store<0>(sums, kAmxRowBytes);
    add_block(sums, begin > 0, totals);
  }
}

/// As multiply_row, of products that have its form.
template <class Registers>
bool multiply_row_by_amx(Products products, bool quantized, const Scratch& scratch, Weights coming) {
  const MatrixProduct& p = products[0];
  if (static_cast<std::size_t>(amx_row_words(p.depth)) * sizeof(DotWord) > scratch.shared_bytes) return false;
  const DotWord* a = copy_row_in_steps(p, scratch);
  if (quantized) {
    const DecodeColumns decode = quantized_column_decoder(p.b.dtype);
    for_each_strip<kColumns, 4>(products, {}, 0, [&](const Strip& strip, const std::byte*, float* totals) HWY_ATTR {
      multiply_decoded_by_amx<Registers>(a, strip, decode, totals);
    });
  } else {
    constexpr std::int64_t kSize = static_cast<std::int64_t>(sizeof(BFloat16));
    const std::int64_t ahead = Prefetcher::strips_ahead(kColumns * p.b.column_stride * kSize);
    const auto run = [&](const Strip& strip, const std::byte* near, float* totals)
                         HWY_ATTR { multiply_columns_by_amx<Registers>(a, strip, Prefetcher(near, ahead), totals); };
    for_each_strip<kColumns, 2>(products, coming, ahead, run);
  }
  return true;
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#else
#define HEDDLE_HAS_AMX_ROWS 0
#endif  // HEDDLE_HAS_BF16_DOT && HEDDLE_AMX

#endif  // per-target include guard
