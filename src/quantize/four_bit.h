#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/dtype.h"

/// The four-bit types of bitsandbytes (Dettmers et al. 2023, arXiv:2305.14314): a tensor, flattened, in blocks of 64
/// elements; an element is one of 16 values times its block's scale, the block's greatest magnitude. The values are
/// quantiles of a normal distribution (NF4, NormalFloat) or have a sign, two bits of exponent and one of mantissa
/// (FP4). With double quantization the scales, less their mean, are themselves codes of 8 bits in blocks of 256 with a
/// scale in fp32.
///
/// DType::nf4, fp4 in memory:                codes (two a byte, the first element in the upper half) padded to 4 bytes,
///                                           scales f32.
/// DType::nf4_double, fp4_double in memory:  codes the same, scale codes u8 padded to 4 bytes, f32 scale of each 256 of
///                                           them, the mean f32. Little-endian.
namespace heddle {

inline constexpr std::int64_t kFourBitBlock = 64;  ///< elements
inline constexpr std::int64_t kNestedBlock = 256;  ///< scales

/// What the codes of NF4 stand for, in rising order.
inline constexpr std::array<float, 16> kNf4Values = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};

/// What the codes of FP4 stand for, by their bits: sign, exponent, mantissa. Both zeros are positive.
inline constexpr std::array<float, 16> kFp4Values = {
    0.0f, 0.0625f / 12.0f,  8.0f / 12.0f,  1.0f,  4.0f / 12.0f,  6.0f / 12.0f,  2.0f / 12.0f,  3.0f / 12.0f,
    0.0f, -0.0625f / 12.0f, -8.0f / 12.0f, -1.0f, -4.0f / 12.0f, -6.0f / 12.0f, -2.0f / 12.0f, -3.0f / 12.0f,
};

/// Whether a type is one of these.
constexpr bool is_four_bit(DType type) { return type >= DType::nf4 && type <= DType::fp4_double; }
constexpr bool is_double_quantized(DType type) { return type == DType::nf4_double || type == DType::fp4_double; }
constexpr const std::array<float, 16>& four_bit_values(DType type) {
  return type == DType::fp4 || type == DType::fp4_double ? kFp4Values : kNf4Values;
}
/// bitsandbytes' names, "nf4" and "fp4": of a type, and the type of one.
constexpr std::string_view quant_type_of(DType type) {
  return type == DType::fp4 || type == DType::fp4_double ? "fp4" : "nf4";
}
DType four_bit_type(std::string_view quant_type, bool double_quantized);

/// What the 8-bit codes of scales stand for, in rising order: the signed dynamic data type (arXiv:1511.04561 as in
/// bitsandbytes), whose fractions get a bit more with each power of ten.
const std::array<float, 256>& nested_scale_values();

/// Where the parts of a tensor lie, in bytes from its start.
struct FourBitLayout {
  FourBitLayout(DType type, std::int64_t elements);
  std::int64_t blocks;         ///< of 64 elements
  std::int64_t nested_blocks;  ///< of 256 scales; 0 without double quantization
  std::int64_t scales;         ///< [blocks] f32, or u8 with double quantization
  std::int64_t nested_scales;  ///< [nested_blocks] f32
  std::int64_t mean;           ///< f32
};

/// Encodes a tensor from its pieces, in any order and from any threads, so that it never exists whole in fp32.
/// Codes are those of bitsandbytes, bit for bit.
class FourBitEncoder {
 public:
  /// `tensor` has storage_bytes(type, elements) and is written by encode() and finish().
  FourBitEncoder(DType type, std::int64_t elements, std::span<std::byte> tensor);
  /// `begin` is a multiple of 64, the count too except at the tensor's end.
  void encode(std::int64_t begin, std::span<const float> values);
  /// After all pieces: quantizes the scales where the type says so.
  void finish();

 private:
  DType type_;
  std::int64_t elements_;
  std::span<std::byte> tensor_;
  FourBitLayout layout_;
  std::vector<float> scales_;
};

/// The two steps of it. Codes of `values` (a whole tensor's, or whole blocks) and their scales.
void encode_four_bit_blocks(DType type, std::span<const float> values, std::byte* codes, float* scales);
/// Scales less `mean` in 8 bits, 256 with one f32 of `nested_scales`.
void encode_nested_scales(std::span<const float> scales, float mean, std::byte* codes, float* nested_scales);
/// The mean of the scales, rounded once. (bitsandbytes' sum in fp32 depends on the number of threads, and may differ
/// in the last bit.)
float mean_scale(std::span<const float> scales);

/// The scale of a block of 64.
float four_bit_scale(DType type, const FourBitLayout& layout, const std::byte* tensor, std::int64_t block);

/// Decodes elements [begin, begin + count) of a tensor of `elements`; any begin and count.
void decode_four_bit(DType type, const std::byte* tensor, std::int64_t elements, std::int64_t begin, std::int64_t count,
                     float* out);

}  // namespace heddle
