// Runs of quantized elements to f32, unit by unit; the formats are those of quantized_formats-inl.h. Overwrites the
// run.
#include "kernels/cpu/quantized.h"

#undef HWY_TARGET_INCLUDE
// As the product's kernels, which read through these.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define HWY_TARGET_INCLUDE "kernels/cpu/quantized.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <algorithm>
#include <array>

#include "kernels/cpu/quantized_super_blocks-inl.h"
#include "quantize/decode.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace {

using namespace quantized;

/// Blocks of any type, through the plain decoder.
void decode_blocks(const QuantizedTensor& tensor, std::int64_t begin, std::int64_t count, float* out) {
  constexpr std::int64_t kMostElements = 256;
  const std::int64_t block = block_elements(tensor.dtype), end = begin + count;
  HEDDLE_CHECK(block <= kMostElements);
  while (begin < end) {
    const std::int64_t skipped = begin % block, first = begin - skipped;
    const std::int64_t there = std::min(block, tensor.elements - first), taken = std::min(there - skipped, end - begin);
    if (taken == there) {
      decode(tensor.dtype, tensor.data, tensor.elements, first, there, out);
    } else {
      std::array<float, kMostElements> whole;
      decode(tensor.dtype, tensor.data, tensor.elements, first, there, whole.data());
      std::copy_n(whole.begin() + skipped, taken, out);
    }
    begin += taken;
    out += taken;
  }
}

#if HWY_TARGET != HWY_SCALAR

template <typename Format>
void decode_run(const QuantizedTensor& tensor, std::int64_t begin, std::int64_t count, float* out) {
  for (const std::int64_t end = begin + count; begin < end;) {
    const std::int64_t unit = begin / kUnit, skipped = begin % kUnit, taken = std::min(kUnit - skipped, end - begin);
    const std::byte* block = tensor.data + unit / Format::kUnits * Format::kBytes;
    if (taken == kUnit) {
      Format::unit(block, unit % Format::kUnits, out);
    } else {
      HWY_ALIGN float whole[kUnit];
      Format::unit(block, unit % Format::kUnits, whole);
      std::copy_n(whole + skipped, taken, out);
    }
    begin += taken;
    out += taken;
  }
}

template <DType kType>
void decode_four_bit_run(const QuantizedTensor& tensor, std::int64_t begin, std::int64_t count, float* out) {
  const FourBitLayout layout(kType, tensor.elements);
  for (const std::int64_t end = begin + count; begin < end;) {
    const std::int64_t unit = begin / kUnit, skipped = begin % kUnit, taken = std::min(kUnit - skipped, end - begin);
    if (taken == kUnit) {
      four_bit_unit<kType>(tensor.data + unit * kHalf,
                           four_bit_scale(kType, layout, tensor.data, begin / kFourBitBlock), out);
    } else {  // the tensor may end in it
      decode_four_bit(kType, tensor.data, tensor.elements, begin, taken, out);
    }
    begin += taken;
    out += taken;
  }
}
#endif

}  // namespace

DecodeRun decoder(DType dtype) {
#if HWY_TARGET != HWY_SCALAR
  switch (dtype) {
    case DType::q4_0: return decode_run<Q4_0>;
    case DType::q4_1: return decode_run<Q4_1>;
    case DType::q5_0: return decode_run<Q5_0>;
    case DType::q5_1: return decode_run<Q5_1>;
    case DType::q8_0: return decode_run<Q8_0>;
    case DType::q2_k: return decode_run<Q2_K>;
    case DType::q3_k: return decode_run<Q3_K>;
    case DType::q4_k: return decode_run<Q4_K>;
    case DType::q5_k: return decode_run<Q5_K>;
    case DType::q6_k: return decode_run<Q6_K>;
    case DType::iq4_nl: return decode_run<Iq4Nl>;
    case DType::iq4_xs: return decode_run<Iq4Xs>;
    case DType::nf4: return decode_four_bit_run<DType::nf4>;
    case DType::nf4_double: return decode_four_bit_run<DType::nf4_double>;
    case DType::fp4: return decode_four_bit_run<DType::fp4>;
    case DType::fp4_double: return decode_four_bit_run<DType::fp4_double>;
    default: break;
  }
#endif
  if (!is_quantized(dtype)) fail("{} is not a quantized type", torch_name(dtype));
  return decode_blocks;
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {

HWY_EXPORT(decoder);

DecodeRun quantized_decoder(DType dtype) { return HWY_DYNAMIC_DISPATCH(decoder)(dtype); }

}  // namespace heddle::cpu
#endif
