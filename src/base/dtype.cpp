#include "base/dtype.h"

#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace heddle {
namespace {

struct DTypeInfo {
  DType type;
  std::size_t bits;
  std::string_view safetensors;
  std::string_view torch;
  bool floating;
  std::int64_t block = 1;        // elements
  std::int64_t block_bytes = 0;  // of GGML's types
};

constexpr std::array<DTypeInfo, 51> kTypes = {{
    {DType::f64, 64, "F64", "float64", true},
    {DType::f32, 32, "F32", "float32", true},
    {DType::bf16, 16, "BF16", "bfloat16", true},
    {DType::f16, 16, "F16", "float16", true},
    {DType::i64, 64, "I64", "int64", false},
    {DType::i32, 32, "I32", "int32", false},
    {DType::i16, 16, "I16", "int16", false},
    {DType::i8, 8, "I8", "int8", false},
    {DType::u8, 8, "U8", "uint8", false},
    {DType::boolean, 8, "BOOL", "bool", false},
    {DType::f8_e4m3, 8, "F8_E4M3", "float8_e4m3fn", true},
    {DType::f8_e5m2, 8, "F8_E5M2", "float8_e5m2", true},
    {DType::u16, 16, "U16", "uint16", false},
    {DType::u32, 32, "U32", "uint32", false},
    {DType::u64, 64, "U64", "uint64", false},
    {DType::f8_e8m0, 8, "F8_E8M0", "float8_e8m0fnu", true},
    {DType::f8_e4m3fnuz, 8, "F8_E4M3FNUZ", "float8_e4m3fnuz", true},
    {DType::f8_e5m2fnuz, 8, "F8_E5M2FNUZ", "float8_e5m2fnuz", true},
    {DType::f6_e2m3, 6, "F6_E2M3", "float6_e2m3fn", true},
    {DType::f6_e3m2, 6, "F6_E3M2", "float6_e3m2fn", true},
    {DType::f4, 4, "F4", "float4_e2m1fn", true},
    {DType::c64, 64, "C64", "complex64", false},
    {DType::q4_0, 0, "Q4_0", "q4_0", false, 32, 18},
    {DType::q4_1, 0, "Q4_1", "q4_1", false, 32, 20},
    {DType::q5_0, 0, "Q5_0", "q5_0", false, 32, 22},
    {DType::q5_1, 0, "Q5_1", "q5_1", false, 32, 24},
    {DType::q8_0, 0, "Q8_0", "q8_0", false, 32, 34},
    {DType::q2_k, 0, "Q2_K", "q2_K", false, 256, 84},
    {DType::q3_k, 0, "Q3_K", "q3_K", false, 256, 110},
    {DType::q4_k, 0, "Q4_K", "q4_K", false, 256, 144},
    {DType::q5_k, 0, "Q5_K", "q5_K", false, 256, 176},
    {DType::q6_k, 0, "Q6_K", "q6_K", false, 256, 210},
    {DType::iq4_nl, 0, "IQ4_NL", "iq4_nl", false, 32, 18},
    {DType::iq4_xs, 0, "IQ4_XS", "iq4_xs", false, 256, 136},
    {DType::nf4, 0, "NF4", "nf4", false, 64},
    {DType::nf4_double, 0, "NF4_DOUBLE", "nf4_double", false, 64},
    {DType::fp4, 0, "FP4", "fp4", false, 64},
    {DType::fp4_double, 0, "FP4_DOUBLE", "fp4_double", false, 64},
    {DType::iq1_s, 0, "IQ1_S", "iq1_s", false, 256, 50},
    {DType::iq1_m, 0, "IQ1_M", "iq1_m", false, 256, 56},
    {DType::iq2_xxs, 0, "IQ2_XXS", "iq2_xxs", false, 256, 66},
    {DType::iq2_xs, 0, "IQ2_XS", "iq2_xs", false, 256, 74},
    {DType::iq2_s, 0, "IQ2_S", "iq2_s", false, 256, 82},
    {DType::iq3_xxs, 0, "IQ3_XXS", "iq3_xxs", false, 256, 98},
    {DType::iq3_s, 0, "IQ3_S", "iq3_s", false, 256, 110},
    {DType::tq1_0, 0, "TQ1_0", "tq1_0", false, 256, 54},
    {DType::tq2_0, 0, "TQ2_0", "tq2_0", false, 256, 66},
    {DType::mxfp4, 0, "MXFP4", "mxfp4", false, 32, 17},
    {DType::nvfp4, 0, "NVFP4", "nvfp4", false, 64, 36},
    {DType::q1_0, 0, "Q1_0", "q1_0", false, 128, 18},
    {DType::q2_0, 0, "Q2_0", "q2_0", false, 64, 18},
}};

const DTypeInfo& info(DType type) { return kTypes[static_cast<std::size_t>(type)]; }

template <typename Source, typename Target>
void convert_elements(const void* source, void* target, std::int64_t count) {
  const auto* from = static_cast<const Source*>(source);
  auto* to = static_cast<Target*>(target);
  for (std::int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<Source, double> && std::is_same_v<Target, double>) {
      to[i] = from[i];
    } else if constexpr (std::is_same_v<Target, double>) {
      to[i] = static_cast<double>(static_cast<float>(from[i]));
    } else {
      to[i] = Target(static_cast<float>(from[i]));
    }
  }
}

template <typename Source>
void convert_from(const void* source, void* target, DType target_type, std::int64_t count) {
  switch (target_type) {
    case DType::f64: return convert_elements<Source, double>(source, target, count);
    case DType::f32: return convert_elements<Source, float>(source, target, count);
    case DType::bf16: return convert_elements<Source, BFloat16>(source, target, count);
    case DType::f16: return convert_elements<Source, Float16>(source, target, count);
    default: fail("cannot convert to {}", torch_name(target_type));
  }
}

}  // namespace

std::size_t dtype_bytes(DType type) { return info(type).bits / 8; }
std::size_t dtype_bits(DType type) { return info(type).bits; }
bool is_quantized(DType type) { return info(type).block > 1; }
bool is_decodable(DType type) {
  const bool is_packed = !is_quantized(type) && info(type).bits % 8 != 0;
  return !is_packed && type < DType::iq1_s;
}
std::int64_t block_elements(DType type) { return info(type).block; }

std::int64_t storage_bytes(DType type, std::int64_t elements) {
  const DTypeInfo& of = info(type);
  if (of.block_bytes > 0) return elements / of.block * of.block_bytes;
  if (of.block == 1) return elements * static_cast<std::int64_t>(of.bits) / 8;
  // bitsandbytes' four bits: two codes a byte up to a multiple of 4 bytes, then the scales.
  const std::int64_t codes = (elements + 7) / 8 * 4, blocks = (elements + of.block - 1) / of.block;
  if (type == DType::nf4 || type == DType::fp4) return codes + 4 * blocks;
  return codes + (blocks + 3) / 4 * 4 + 4 * ((blocks + 255) / 256) + 4;
}

std::string_view safetensors_name(DType type) { return info(type).safetensors; }
std::string_view torch_name(DType type) { return info(type).torch; }
bool is_floating(DType type) { return info(type).floating; }

DType dtype_from_safetensors(std::string_view name) {
  for (const auto& entry : kTypes) {
    if (entry.safetensors == name && entry.block == 1) return entry.type;
  }
  fail("unknown data type {}; expected F64, F32, BF16, F16, I64, I32, I16, I8, U8, BOOL, ...", name);
}

DType dtype_from_torch(std::string_view name) {
  for (const auto& entry : kTypes) {
    if (entry.torch == name && entry.block == 1) return entry.type;
  }
  fail("unknown data type {}; expected float32, bfloat16, float16, ...", name);
}

BFloat16::BFloat16(float value) {
  auto word = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) {
    bits = static_cast<std::uint16_t>((word >> 16) | 0x40u);  // quiet, so that rounding cannot make it infinite
    return;
  }
  word += 0x7fffu + ((word >> 16) & 1u);
  bits = static_cast<std::uint16_t>(word >> 16);
}

Float16::Float16(float value) {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (word >> 16) & 0x8000u;
  const std::uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    bits = static_cast<std::uint16_t>(sign | 0x7e00u);
  } else if (magnitude >= 0x477ff000u) {  // 65520 and above round to infinity
    bits = static_cast<std::uint16_t>(sign | 0x7c00u);
  } else if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 aligns the mantissa, and the hardware rounds
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3f000000u));
  } else {
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    bits = static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
  }
}

Float16::operator float() const {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1fu) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float value = std::ldexp(static_cast<float>(mantissa), -24);
  return sign != 0 ? -value : value;
}

void convert(const void* source, DType source_type, void* target, DType target_type, std::int64_t count) {
  if (source_type == target_type) {
    if (source != target) std::memcpy(target, source, static_cast<std::size_t>(count) * dtype_bytes(source_type));
    return;
  }
  switch (source_type) {
    case DType::f64: return convert_from<double>(source, target, target_type, count);
    case DType::f32: return convert_from<float>(source, target, target_type, count);
    case DType::bf16: return convert_from<BFloat16>(source, target, target_type, count);
    case DType::f16: return convert_from<Float16>(source, target, target_type, count);
    default: fail("cannot convert from {}", torch_name(source_type));
  }
}

}  // namespace heddle
