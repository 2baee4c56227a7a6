#include "formats/tensor_values.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace heddle {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// How the codes of an 8-bit float beyond its greatest number are used.
enum class Specials {
  ieee,           // the greatest exponent: infinity, and NaN
  one_nan,        // "fn": only all ones are NaN
  unsigned_zero,  // "fnuz": only minus zero is NaN
};

/// Micikevicius et al. 2022, arXiv:2209.05433 (E4M3, E5M2); Noune et al. 2022, arXiv:2206.02915 (the fnuz kinds).
double decode_float8(std::uint8_t code, int mantissa_bits, int bias, Specials specials) {
  const int exponent_mask = (1 << (7 - mantissa_bits)) - 1;
  const int exponent = (code >> mantissa_bits) & exponent_mask, mantissa = code & ((1 << mantissa_bits) - 1);
  if (specials == Specials::unsigned_zero && code == 0x80) return kNaN;
  if (specials == Specials::one_nan && (code & 0x7f) == 0x7f) return kNaN;
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  if (specials == Specials::ieee && exponent == exponent_mask) {
    return mantissa != 0 ? kNaN : sign * std::numeric_limits<double>::infinity();
  }
  // Subnormal numbers have the exponent of the smallest normal ones, and no leading 1.
  const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
  return sign * std::ldexp(whole, std::max(exponent, 1) - bias - mantissa_bits);
}

template <typename Element, typename Value>
void append_each(std::span<const std::byte> bytes, Json& values, Value value) {
  HEDDLE_CHECK(bytes.size() % sizeof(Element) == 0);
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(Element)) {
    Element element;
    std::memcpy(&element, bytes.data() + at, sizeof(element));
    values.push_back(value(element));
  }
}

template <typename Element>
void append_numbers(std::span<const std::byte> bytes, Json& values) {
  append_each<Element>(bytes, values, [](Element element) { return element; });
}

template <typename Half>
void append_halves(std::span<const std::byte> bytes, Json& values) {
  append_each<Half>(bytes, values, [](Half element) { return double{static_cast<float>(element)}; });
}

void append_floats8(std::span<const std::byte> bytes, Json& values, int mantissa_bits, int bias, Specials specials) {
  append_each<std::uint8_t>(bytes, values,
                            [=](std::uint8_t code) { return decode_float8(code, mantissa_bits, bias, specials); });
}

}  // namespace

bool has_values(DType dtype) { return dtype_bytes(dtype) > 0; }

void append_values(DType dtype, std::span<const std::byte> bytes, Json& values) {
  switch (dtype) {
    case DType::f64: return append_numbers<double>(bytes, values);
    case DType::f32: return append_each<float>(bytes, values, [](float value) { return double{value}; });
    case DType::bf16: return append_halves<BFloat16>(bytes, values);
    case DType::f16: return append_halves<Float16>(bytes, values);
    case DType::i64: return append_numbers<std::int64_t>(bytes, values);
    case DType::i32: return append_numbers<std::int32_t>(bytes, values);
    case DType::i16: return append_numbers<std::int16_t>(bytes, values);
    case DType::i8: return append_numbers<std::int8_t>(bytes, values);
    case DType::u64: return append_numbers<std::uint64_t>(bytes, values);
    case DType::u32: return append_numbers<std::uint32_t>(bytes, values);
    case DType::u16: return append_numbers<std::uint16_t>(bytes, values);
    case DType::u8: return append_numbers<std::uint8_t>(bytes, values);
    case DType::boolean: return append_each<std::uint8_t>(bytes, values, [](std::uint8_t value) { return value != 0; });
    case DType::f8_e4m3: return append_floats8(bytes, values, 3, 7, Specials::one_nan);
    case DType::f8_e5m2: return append_floats8(bytes, values, 2, 15, Specials::ieee);
    case DType::f8_e4m3fnuz: return append_floats8(bytes, values, 3, 8, Specials::unsigned_zero);
    case DType::f8_e5m2fnuz: return append_floats8(bytes, values, 2, 16, Specials::unsigned_zero);
    case DType::f8_e8m0:  // a power of two (OCP Microscaling Formats 1.0, 5.4.1)
      return append_each<std::uint8_t>(
          bytes, values, [](std::uint8_t code) { return code == 255 ? kNaN : std::ldexp(1.0, code - 127); });
    case DType::c64:
      return append_each<std::array<float, 2>>(bytes, values, [](const std::array<float, 2>& value) {
        return Json::array({double{value[0]}, double{value[1]}});
      });
    default: break;
  }
  fail("values of type {} are packed, in an order that the format does not fix", safetensors_name(dtype));
}

}  // namespace heddle
