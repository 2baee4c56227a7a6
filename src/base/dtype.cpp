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
};

constexpr std::array<DTypeInfo, 22> kTypes = {{
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
std::string_view safetensors_name(DType type) { return info(type).safetensors; }
std::string_view torch_name(DType type) { return info(type).torch; }
bool is_floating(DType type) { return info(type).floating; }

DType dtype_from_safetensors(std::string_view name) {
  for (const auto& entry : kTypes) {
    if (entry.safetensors == name) return entry.type;
  }
  fail("unknown data type {}; expected F64, F32, BF16, F16, I64, I32, I16, I8, U8, BOOL, ...", name);
}

DType dtype_from_torch(std::string_view name) {
  for (const auto& entry : kTypes) {
    if (entry.torch == name) return entry.type;
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
