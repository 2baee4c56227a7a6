// GGML's blocks of 256 elements, with scales of scales: the formats of quantized_formats-inl.h that they make up.
// Per-target include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_QUANTIZED_SUPER_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_QUANTIZED_SUPER_BLOCKS_INL_H_
#undef HEDDLE_KERNELS_CPU_QUANTIZED_SUPER_BLOCKS_INL_H_
#else
#define HEDDLE_KERNELS_CPU_QUANTIZED_SUPER_BLOCKS_INL_H_
#endif

#include "kernels/cpu/quantized_formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace quantized {
#if HWY_TARGET != HWY_SCALAR

/// Four units lie in each half of the bytes of Q2_K and Q3_K, two bits of a byte each.
struct QuarterOfBytes {
  explicit QuarterOfBytes(std::int64_t unit) : offset(unit / 4 * kUnit), shift(static_cast<int>(unit % 4 * 2)) {}
  std::int64_t offset;
  int shift;
};

struct Q2_K {  // 16 bytes: scale and minimum of 16 elements each, 64 bytes of codes, f16 d, f16 dmin; d s q - dmin m
  static constexpr std::int64_t kUnits = 8, kBytes = 84;
  static HWY_INLINE void unit(const std::byte* block, std::int64_t unit, float* out) {
    const FloatVector d = half_scale(block + 80), dmin = half_scale(block + 82);
    const QuarterOfBytes part(unit);
    for (std::int64_t i = 0; i < kUnit; i += kLanes) {
      const int packed = read<std::uint8_t>(block + 2 * unit + i / 16);
      const FloatVector scale = hn::Mul(d, hn::Set(FloatTag(), static_cast<float>(packed & 15)));
      const FloatVector minimum = hn::Mul(dmin, hn::Set(FloatTag(), static_cast<float>(packed >> 4)));
      const IntVector q = hn::ShiftRightSame(load_bytes(block + 16 + part.offset + i), part.shift);
      put(hn::MulSub(real(masked(q, 3)), scale, minimum), out + i);
    }
  }
  static HWY_INLINE void columns(Blocks blocks, std::int64_t unit, float* out) {
    const Words scales = gather_words(blocks, 80);
    const FloatVector d = lower_scale(scales), dmin = upper_scale(scales);
    const QuarterOfBytes part(unit);
    Words packed[4];
    load_transposed(blocks, 0, packed);
    for (std::int64_t i = 0; i < kUnit; i += kHalf) {
      const IntVector both = byte_of(packed, 2 * unit + i / kHalf);
      const FloatVector scale = hn::Mul(d, real(masked(both, 15)));
      const FloatVector minimum = hn::Mul(dmin, real(hn::ShiftRight<4>(both)));
      Words bytes[4];
      load_transposed(blocks, 16 + part.offset + i, bytes);
      HWY_UNROLL(16)
      for (int e = 0; e < 16; ++e) {
        const IntVector q = field(bytes[e / 4], e % 4 * 8 + part.shift, 2);
        put(hn::MulSub(real(q), scale, minimum), out + (i + e) * kLanes);
      }
    }
  }
};

struct Q3_K {  // 32 bytes of third bits (bit u is unit u's), 64 of two lower ones, 12 of scales of 16 elements, f16 d;
               // d (s - 32) (q - 4)
  static constexpr std::int64_t kUnits = 8, kBytes = 110;
  static HWY_INLINE void unit(const std::byte* block, std::int64_t unit, float* out) {
    const FloatVector d = half_scale(block + 108);
    const QuarterOfBytes part(unit);
    for (std::int64_t i = 0; i < kUnit; i += kLanes) {
      const std::int64_t index = 2 * unit + i / 16;  // four lower bits: 16 in 8 bytes; two upper ones: 16 in 4 bytes
      const int low = read<std::uint8_t>(block + 96 + index % 8) >> index / 8 * 4 & 15;
      const int high = read<std::uint8_t>(block + 104 + index % 4) >> index / 4 * 2 & 3;
      const FloatVector scale = hn::Mul(d, hn::Set(FloatTag(), static_cast<float>((low | high << 4) - 32)));
      const IntVector q = masked(hn::ShiftRightSame(load_bytes(block + 32 + part.offset + i), part.shift), 3);
      const IntVector third = masked(hn::ShiftRightSame(load_bytes(block + i), static_cast<int>(unit)), 1);
      put(hn::Mul(real(minus(hn::Or(q, hn::ShiftLeft<2>(third)), 4)), scale), out + i);
    }
  }
  static HWY_INLINE void columns(Blocks blocks, std::int64_t unit, float* out) {
    constexpr std::int64_t kScales = 2;  // where they begin in the 16 bytes from 94 on
    const QuarterOfBytes part(unit);
    Words packed[4];
    load_transposed(blocks, 96 - kScales, packed);
    const FloatVector d = upper_scale(packed[3]);
    for (std::int64_t i = 0; i < kUnit; i += kHalf) {
      const std::int64_t index = 2 * unit + i / kHalf;
      const IntVector low = byte_of(packed, kScales + index % 8), high = byte_of(packed, kScales + 8 + index % 4);
      const IntVector low4 = masked(hn::ShiftRightSame(low, static_cast<int>(index / 8 * 4)), 15);
      const IntVector high2 = masked(hn::ShiftRightSame(high, static_cast<int>(index / 4 * 2)), 3);
      const FloatVector scale = hn::Mul(d, real(minus(hn::Or(low4, hn::ShiftLeft<4>(high2)), 32)));
      Words bytes[4], thirds[4];
      load_transposed(blocks, 32 + part.offset + i, bytes);
      load_transposed(blocks, i, thirds);
      HWY_UNROLL(16)
      for (int e = 0; e < 16; ++e) {
        const IntVector q = field(bytes[e / 4], e % 4 * 8 + part.shift, 2);
        const IntVector third = field(thirds[e / 4], e % 4 * 8 + static_cast<int>(unit), 1);
        put(hn::Mul(real(minus(hn::Or(q, hn::ShiftLeft<2>(third)), 4)), scale), out + (i + e) * kLanes);
      }
    }
  }
};

/// Scale and minimum of a unit of Q4_K and Q5_K, 6 bits each, times those of the block: f16 d, f16 dmin and 12 bytes,
/// in which the last four units' upper bits are spread over the first eight bytes.
struct ScaleAndMinimum {
  FloatVector scale, minimum;
};
HWY_INLINE ScaleAndMinimum k_scale(const std::byte* block, std::int64_t unit) {
  const auto* packed = reinterpret_cast<const std::uint8_t*>(block) + 4;
  int scale = 0, minimum = 0;
  if (unit < 4) {
    scale = packed[unit] & 63;
    minimum = packed[unit + 4] & 63;
  } else {
    scale = (packed[unit + 4] & 15) | (packed[unit - 4] >> 6 << 4);
    minimum = (packed[unit + 4] >> 4) | (packed[unit] >> 6 << 4);
  }
  const FloatTag d;
  return {hn::Mul(half_scale(block), hn::Set(d, static_cast<float>(scale))),
          hn::Mul(half_scale(block + 2), hn::Set(d, static_cast<float>(minimum)))};
}
HWY_INLINE ScaleAndMinimum k_scales(Blocks blocks, std::int64_t unit) {
  Words head[4];
  load_transposed(blocks, 0, head);
  const int shift = static_cast<int>(unit % 4 * 8);
  IntVector scale, minimum;
  if (unit < 4) {
    scale = field(head[1], shift, 6);
    minimum = field(head[2], shift, 6);
  } else {
    scale = hn::Or(field(head[3], shift, 4), hn::ShiftLeft<4>(field(head[1], shift + 6, 2)));
    minimum = hn::Or(field(head[3], shift + 4, 4), hn::ShiftLeft<4>(field(head[2], shift + 6, 2)));
  }
  return {hn::Mul(lower_scale(head[0]), real(scale)), hn::Mul(upper_scale(head[0]), real(minimum))};
}

struct Q4_K {  // f16 d, f16 dmin, 12 bytes of scales, 128 bytes: two units in the halves of 32 bytes; d s q - dmin m
  static constexpr std::int64_t kUnits = 8, kBytes = 144;
  static HWY_INLINE void unit(const std::byte* block, std::int64_t unit, float* out) {
    const auto [scale, minimum] = k_scale(block, unit);
    const std::byte* codes = block + 16 + unit / 2 * kUnit;
    const int shift = static_cast<int>(unit % 2 * 4);
    for (std::int64_t i = 0; i < kUnit; i += kLanes) {
      const IntVector q = masked(hn::ShiftRightSame(load_bytes(codes + i), shift), 15);
      put(hn::MulSub(real(q), scale, minimum), out + i);
    }
  }
  static HWY_INLINE void columns(Blocks blocks, std::int64_t unit, float* out) {
    const ScaleAndMinimum s = k_scales(blocks, unit);
    Words bytes[8];
    load_transposed(blocks, 16 + unit / 2 * kUnit, bytes);
    load_transposed(blocks, 16 + unit / 2 * kUnit + kHalf, bytes + 4);
    put_row(bytes, static_cast<int>(unit % 2 * 4), out,
            [&](IntVector q, int) HWY_ATTR { return hn::MulSub(real(q), s.scale, s.minimum); });
  }
};

struct Q5_K {  // f16 d, f16 dmin, 12 bytes of scales, 32 bytes of fifth bits (bit u is unit u's), then as Q4_K
  static constexpr std::int64_t kUnits = 8, kBytes = 176;
  static HWY_INLINE void unit(const std::byte* block, std::int64_t unit, float* out) {
    const auto [scale, minimum] = k_scale(block, unit);
    const std::byte* codes = block + 48 + unit / 2 * kUnit;
    const int shift = static_cast<int>(unit % 2 * 4);
    for (std::int64_t i = 0; i < kUnit; i += kLanes) {
      const IntVector low = masked(hn::ShiftRightSame(load_bytes(codes + i), shift), 15);
      const IntVector high = hn::ShiftRightSame(load_bytes(block + 16 + i), static_cast<int>(unit));
      put(hn::MulSub(real(hn::Or(low, hn::ShiftLeft<4>(masked(high, 1)))), scale, minimum), out + i);
    }
  }
  static HWY_INLINE void columns(Blocks blocks, std::int64_t unit, float* out) {
    const ScaleAndMinimum s = k_scales(blocks, unit);
    Words bytes[8], fifths[8];
    for (std::int64_t i = 0; i < 2; ++i) {
      load_transposed(blocks, 48 + unit / 2 * kUnit + i * kHalf, bytes + 4 * i);
      load_transposed(blocks, 16 + i * kHalf, fifths + 4 * i);
    }
    put_row(bytes, static_cast<int>(unit % 2 * 4), out, [&](IntVector q, int e) HWY_ATTR {
      const IntVector fifth = field(fifths[e / 4], e % 4 * 8 + static_cast<int>(unit), 1);
      return hn::MulSub(real(hn::Or(q, hn::ShiftLeft<4>(fifth))), s.scale, s.minimum);
    });
  }
};

struct Q6_K {  // 128 bytes of four lower bits, 64 of two upper ones, 16 signed scales of 16 elements, f16 d;
               // d s (q - 32)
  static constexpr std::int64_t kUnits = 8, kBytes = 210;
  // A half of the block is four units: 0 and 1 in the lower halves of 64 bytes, 2 and 3 in the upper ones.
  static HWY_INLINE std::int64_t lower(std::int64_t unit) { return unit / 4 * 64 + unit % 2 * kUnit; }
  static HWY_INLINE std::int64_t upper(std::int64_t unit) { return 128 + unit / 4 * 32; }
  static HWY_INLINE void unit(const std::byte* block, std::int64_t unit, float* out) {
    const FloatVector d = half_scale(block + 208);
    const int low_shift = unit % 4 < 2 ? 0 : 4, high_shift = static_cast<int>(unit % 4 * 2);
    for (std::int64_t i = 0; i < kUnit; i += kLanes) {
      const auto packed = static_cast<float>(read<std::int8_t>(block + 192 + 2 * unit + i / 16));
      const FloatVector scale = hn::Mul(d, hn::Set(FloatTag(), packed));
      const IntVector low = masked(hn::ShiftRightSame(load_bytes(block + lower(unit) + i), low_shift), 15);
      const IntVector high = masked(hn::ShiftRightSame(load_bytes(block + upper(unit) + i), high_shift), 3);
      put(hn::Mul(real(minus(hn::Or(low, hn::ShiftLeft<4>(high)), 32)), scale), out + i);
    }
  }
  static HWY_INLINE void columns(Blocks blocks, std::int64_t unit, float* out) {
    const FloatVector d = half_scales(blocks, 208);
    const int low_shift = unit % 4 < 2 ? 0 : 4, high_shift = static_cast<int>(unit % 4 * 2);
    Words packed[4];
    load_transposed(blocks, 192, packed);
    for (std::int64_t i = 0; i < kUnit; i += kHalf) {
      const auto index = static_cast<int>(2 * unit + i / kHalf);
      const FloatVector scale = hn::Mul(d, real(signed_byte(packed[index / 4], index % 4)));
      Words low[4], high[4];
      load_transposed(blocks, lower(unit) + i, low);
      load_transposed(blocks, upper(unit) + i, high);
      HWY_UNROLL(16)
      for (int e = 0; e < 16; ++e) {
        const int byte = e % 4 * 8;
        const IntVector q =
            hn::Or(field(low[e / 4], byte + low_shift, 4), hn::ShiftLeft<4>(field(high[e / 4], byte + high_shift, 2)));
        put(hn::Mul(real(minus(q, 32)), scale), out + (i + e) * kLanes);
      }
    }
  }
};

#endif

}  // namespace quantized
}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
