// The same run of several quantized rows to f32, transposed: codes are transposed as bytes, 16 of each row at a time,
// and decoded a row a lane. That is what a product with one row of A reads, whose sums run over the depth. Overwrites
// the run.
#include "kernels/cpu/quantized.h"

#undef HWY_TARGET_INCLUDE
// As the product's kernels, which read through these.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_TARGET_INCLUDE "kernels/cpu/quantized_columns.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <algorithm>

#include "kernels/cpu/quantized_super_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace {

using namespace quantized;

constexpr std::int64_t kWidth = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));

/// Row by row, for what is not aligned.
void decode_each_row(const QuantizedTensor& tensor, std::int64_t begin, std::int64_t row_stride, std::int64_t rows,
                     std::int64_t count, float* out) {
  const DecodeRun decode_run = quantized_decoder(tensor.dtype);
  for (std::int64_t k = 0; k < count; k += kUnit) {
    const std::int64_t taken = std::min(kUnit, count - k);
    HWY_ALIGN float values[kWidth][kUnit];
    for (std::int64_t i = 0; i < kWidth; ++i) {
      if (i < rows) {
        decode_run(tensor, begin + i * row_stride + k, taken, values[i]);
      } else {
        std::fill_n(values[i], taken, 0.0f);
      }
    }
    for (std::int64_t e = 0; e < taken; ++e) {
      for (std::int64_t i = 0; i < kWidth; ++i) out[(k + e) * kWidth + i] = values[i][e];
    }
  }
}

#if HWY_TARGET != HWY_SCALAR

/// Calls columns(unit of the first row, out) for each unit of kElements that the run touches, and keeps of it
/// what belongs to the run.
template <std::int64_t kElements, typename Columns>
HWY_INLINE void for_each_unit(std::int64_t begin, std::int64_t count, float* out, const Columns& columns) {
  for (std::int64_t k = 0; k < count;) {
    const std::int64_t unit = (begin + k) / kElements, skipped = (begin + k) % kElements;
    const std::int64_t taken = std::min(kElements - skipped, count - k);
    if (taken == kElements) {
      columns(unit, out + k * kWidth);
    } else {
      HWY_ALIGN float whole[kElements * kWidth];
      columns(unit, whole);
      std::copy_n(whole + skipped * kWidth, taken * kWidth, out + k * kWidth);
    }
    k += taken;
  }
}

template <typename Format>
void decode_columns(const QuantizedTensor& tensor, std::int64_t begin, std::int64_t row_stride, std::int64_t rows,
                    std::int64_t count, float* out) {
  constexpr std::int64_t kElements = kUnit * Format::kUnits;
  if (row_stride % kElements != 0 || rows < kWidth) {
    return decode_each_row(tensor, begin, row_stride, rows, count, out);
  }
  const std::int64_t row_bytes = row_stride / kElements * Format::kBytes;
  for_each_unit<kUnit>(begin, count, out, [&](std::int64_t unit, float* to) HWY_ATTR {
    const Blocks blocks = {tensor.data + unit / Format::kUnits * Format::kBytes, row_bytes};
    Format::columns(blocks, unit % Format::kUnits, to);
  });
}

/// The scales of one block of each row: `first` of the first one, `stride` blocks apart.
template <DType kType>
HWY_INLINE FloatVector four_bit_scales(const FourBitLayout& layout, const std::byte* tensor, std::int64_t first,
                                       std::int64_t stride) {
  const FloatTag d;
  HWY_ALIGN float scales[kWidth];
  if constexpr (!is_double_quantized(kType)) {
    for (std::int64_t i = 0; i < kWidth; ++i) {
      scales[i] = read<float>(tensor + layout.scales + (first + i * stride) * static_cast<std::int64_t>(sizeof(float)));
    }
    return hn::Load(d, scales);
  } else {
    const std::array<float, 256>& values = nested_scale_values();
    HWY_ALIGN float nested[kWidth];
    for (std::int64_t i = 0; i < kWidth; ++i) {
      const std::int64_t block = first + i * stride;
      scales[i] = values[read<std::uint8_t>(tensor + layout.scales + block)];
      nested[i] =
          read<float>(tensor + layout.nested_scales + block / kNestedBlock * static_cast<std::int64_t>(sizeof(float)));
    }
    // Two roundings, as bitsandbytes.
    return hn::Add(hn::Mul(hn::Load(d, scales), hn::Load(d, nested)), hn::Set(d, read<float>(tensor + layout.mean)));
  }
}

template <DType kType>
void decode_four_bit_columns(const QuantizedTensor& tensor, std::int64_t begin, std::int64_t row_stride,
                             std::int64_t rows, std::int64_t count, float* out) {
  if (row_stride % kFourBitBlock != 0 || rows < kWidth) {
    return decode_each_row(tensor, begin, row_stride, rows, count, out);
  }
  const FourBitLayout layout(kType, tensor.elements);
  const auto columns = [&](std::int64_t block, float* to) HWY_ATTR {
    const FloatVector scale = four_bit_scales<kType>(layout, tensor.data, block, row_stride / kFourBitBlock);
    const Blocks codes = {tensor.data + block * kFourBitBlock / 2, row_stride / 2};
    four_bit_columns<kType>(codes, 0, scale, to);
    four_bit_columns<kType>(codes, kHalf, scale, to + kUnit * kWidth);
  };
  for_each_unit<kFourBitBlock>(begin, count, out, columns);
}
#endif

}  // namespace

DecodeColumns column_decoder(DType dtype) {
#if HWY_TARGET != HWY_SCALAR
  switch (dtype) {
    case DType::q4_0: return decode_columns<Q4_0>;
    case DType::q4_1: return decode_columns<Q4_1>;
    case DType::q5_0: return decode_columns<Q5_0>;
    case DType::q5_1: return decode_columns<Q5_1>;
    case DType::q8_0: return decode_columns<Q8_0>;
    case DType::q2_k: return decode_columns<Q2_K>;
    case DType::q3_k: return decode_columns<Q3_K>;
    case DType::q4_k: return decode_columns<Q4_K>;
    case DType::q5_k: return decode_columns<Q5_K>;
    case DType::q6_k: return decode_columns<Q6_K>;
    case DType::iq4_nl: return decode_columns<Iq4Nl>;
    case DType::iq4_xs: return decode_columns<Iq4Xs>;
    case DType::nf4: return decode_four_bit_columns<DType::nf4>;
    case DType::nf4_double: return decode_four_bit_columns<DType::nf4_double>;
    case DType::fp4: return decode_four_bit_columns<DType::fp4>;
    case DType::fp4_double: return decode_four_bit_columns<DType::fp4_double>;
    default: break;
  }
#endif
  if (!is_quantized(dtype)) fail("{} is not a quantized type", torch_name(dtype));
  return decode_each_row;
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {

HWY_EXPORT(column_decoder);

DecodeColumns quantized_column_decoder(DType dtype) { return HWY_DYNAMIC_DISPATCH(column_decoder)(dtype); }

}  // namespace heddle::cpu
#endif
