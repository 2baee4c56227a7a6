#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace heddle {

/// Element types of tensors and buffers. Names are those of safetensors.
enum class DType : std::uint8_t {
  f64,
  f32,
  bf16,
  f16,
  i64,
  i32,
  i16,
  i8,
  u8,
  boolean,
  f8_e4m3,
  f8_e5m2,
  u16,
  u32,
  u64,
  // Stored and shown, never computed with:
  f8_e8m0,
  f8_e4m3fnuz,
  f8_e5m2fnuz,
  f6_e2m3,
  f6_e3m2,
  f4,
  c64,
  // Quantized weights: whole blocks of elements with their scales (quantize/). Those of GGML, in its own layout:
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  // bitsandbytes' types of four bits, blocks of 64 over the flattened tensor; see quantize/four_bit.h for the layout:
  nf4,         ///< scales in fp32
  nf4_double,  ///< scales in 8 bits, with scales of their own (double quantization)
  fp4,
  fp4_double,
  // GGML's other types: named in a listing, never decoded.
  iq1_s,
  iq1_m,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  tq1_0,
  tq2_0,
  mxfp4,
  nvfp4,
  q1_0,
  q2_0
};

/// Of an element; 0 for types below a byte, whose elements lie packed (these have dtype_bits), and for quantized ones.
std::size_t dtype_bytes(DType type);
std::size_t dtype_bits(DType type);
/// Whether elements lie in blocks with scales: only storage_bytes() knows their size.
bool is_quantized(DType type);
/// False for types that files may hold and Heddle only names: no value of theirs is ever computed with or shown.
bool is_decodable(DType type);
/// Elements of a block; a row of a GGML type is whole blocks. 1 for plain types.
std::int64_t block_elements(DType type);
/// Bytes of a tensor of that many elements (whole blocks; the last one of four bits may be short). Plain types: of
/// whole bytes.
std::int64_t storage_bytes(DType type, std::int64_t elements);
/// "F32", "BF16", ... as safetensors spells them; "Q4_K", "NF4", ... for quantized types, which it does not have.
std::string_view safetensors_name(DType type);
/// "float32", "bfloat16", ... as PyTorch spells them.
std::string_view torch_name(DType type);
/// Both throw Error for an unknown name.
DType dtype_from_safetensors(std::string_view name);
DType dtype_from_torch(std::string_view name);
bool is_floating(DType type);

/// bfloat16: the upper half of an IEEE float. Conversion rounds to nearest even; NaN stays NaN.
struct BFloat16 {
  std::uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value);
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
};

/// IEEE binary16. Conversion rounds to nearest even; overflow gives infinity.
struct Float16 {
  std::uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value);
  explicit operator float() const;
};

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};

/// Converts `count` elements between floating types (f32, f64, bf16, f16), any pair. Source and target do not overlap
/// unless they are the same type and address.
void convert(const void* source, DType source_type, void* target, DType target_type, std::int64_t count);

}  // namespace heddle
