// The quantized formats in units of 32 elements: a block of GGML's small types, an eighth of its super-blocks, half a
// block of bitsandbytes' four bits. Each format says how a unit becomes 32 adjacent f32 (`unit`), and how the same unit
// of several rows becomes f32 whose lanes are the rows (`columns`). A value is one rounding of what the format says, as
// ggml and bitsandbytes compute it: products of scales in fp16, of scales of those and of codes are exact in f32, so
// that neither their order nor a fused multiply-add shows. Formats: ggml-common.h and ggml-quants.c of ggml. Per-target
// include guard, as Highway's own -inl.h files.
#if defined(HEDDLE_KERNELS_CPU_QUANTIZED_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_KERNELS_CPU_QUANTIZED_FORMATS_INL_H_
#undef HEDDLE_KERNELS_CPU_QUANTIZED_FORMATS_INL_H_
#else
#define HEDDLE_KERNELS_CPU_QUANTIZED_FORMATS_INL_H_
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/transpose-inl.h"
#include "quantize/four_bit.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace quantized {

inline constexpr std::int64_t kUnit = 32;

#if HWY_TARGET != HWY_SCALAR

inline constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(FloatTag()));
inline constexpr std::int64_t kHalf = kUnit / 2;
static_assert(kHalf % kLanes == 0);

using IntTag = hn::RebindToSigned<FloatTag>;
using IntVector = hn::Vec<IntTag>;
/// The blocks of as many rows as there are lanes, `stride` bytes apart.
struct Blocks {
  const std::byte* first;
  std::int64_t stride;
  const std::byte* operator[](std::size_t i) const { return first + static_cast<std::int64_t>(i) * stride; }
};

HWY_INLINE IntVector load_bytes(const std::byte* from) {
  const hn::Rebind<std::uint8_t, FloatTag> bytes;
  return hn::PromoteTo(IntTag(), hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(from)));
}
HWY_INLINE IntVector load_signed_bytes(const std::byte* from) {
  const hn::Rebind<std::int8_t, FloatTag> bytes;
  return hn::PromoteTo(IntTag(), hn::LoadU(bytes, reinterpret_cast<const std::int8_t*>(from)));
}
HWY_INLINE IntVector masked(IntVector v, int mask) { return hn::And(v, hn::Set(IntTag(), mask)); }
HWY_INLINE IntVector minus(IntVector v, int offset) { return hn::Sub(v, hn::Set(IntTag(), offset)); }
HWY_INLINE FloatVector real(IntVector v) { return hn::ConvertTo(FloatTag(), v); }
HWY_INLINE void put(FloatVector v, float* to) { hn::StoreU(v, FloatTag(), to); }

/// `bits` bits of each word from `shift` on.
HWY_INLINE IntVector field(Words words, int shift, int bits) {
  return masked(hn::BitCast(IntTag(), hn::ShiftRightSame(words, shift)), (1 << bits) - 1);
}
/// Byte `index` of 16 bytes of each row, as load_transposed leaves them.
HWY_INLINE IntVector byte_of(const Words* words, std::int64_t index) {
  return field(words[index / 4], static_cast<int>(index % 4 * 8), 8);
}
HWY_INLINE IntVector signed_byte(Words words, int index) {
  return hn::ShiftRight<24>(hn::BitCast(IntTag(), hn::ShiftLeftSame(words, 24 - 8 * index)));
}

template <typename T>
HWY_INLINE T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

/// Scales in fp16 as they lie in 16 bits of each lane.
template <class V>
HWY_INLINE FloatVector half_to_float(V bits) {
#if HWY_TARGET == HWY_EMU128
  const hn::Rebind<std::uint16_t, FloatTag> tag;
  HWY_ALIGN Float16 lanes[kLanes];
  hn::Store(bits, tag, &lanes[0].bits);
  return load(FloatTag(), lanes);
#else
  const hn::Rebind<hwy::float16_t, FloatTag> narrow;
  return hn::PromoteTo(FloatTag(), hn::BitCast(narrow, bits));
#endif
}
/// A scale in fp16, in all lanes.
HWY_INLINE FloatVector half_scale(const std::byte* from) {
  const hn::Rebind<std::uint16_t, FloatTag> tag;
  return half_to_float(hn::Set(tag, read<std::uint16_t>(from)));
}
/// The scale in fp16 at `offset` of each block.
HWY_INLINE FloatVector half_scales(Blocks blocks, std::int64_t offset) {
  const hn::Rebind<std::uint16_t, FloatTag> tag;
  HWY_ALIGN std::uint16_t lanes[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = read<std::uint16_t>(blocks[i] + offset);
  return half_to_float(hn::Load(tag, lanes));
}
HWY_INLINE Words gather_words(Blocks blocks, std::int64_t offset) {
  HWY_ALIGN std::uint32_t lanes[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = read<std::uint32_t>(blocks[i] + offset);
  return hn::Load(WordTag(), lanes);
}
/// Scales in fp16 in the lower, or the upper, half of each word.
HWY_INLINE FloatVector lower_scale(Words words) {
  const hn::Rebind<std::uint16_t, FloatTag> tag;
  return half_to_float(hn::TruncateTo(tag, hn::And(words, hn::Set(WordTag(), 0xffffu))));
}
HWY_INLINE FloatVector upper_scale(Words words) {
  const hn::Rebind<std::uint16_t, FloatTag> tag;
  return half_to_float(hn::TruncateTo(tag, hn::ShiftRight<16>(words)));
}

using Table = std::array<float, 16>;

/// table[code] for codes below 16.
HWY_INLINE FloatVector look_up(const Table& table, IntVector code) {
  const FloatTag d;
  if constexpr (kLanes == 16) {
    return hn::TableLookupLanes(hn::LoadU(d, table.data()), hn::IndicesFromVec(d, code));
  } else if constexpr (kLanes == 8) {
    const auto index = hn::IndicesFromVec(d, masked(code, 7));
    const auto is_upper = hn::RebindMask(d, hn::Gt(code, hn::Set(IntTag(), 7)));
    return hn::IfThenElse(is_upper, hn::TableLookupLanes(hn::LoadU(d, table.data() + 8), index),
                          hn::TableLookupLanes(hn::LoadU(d, table.data()), index));
  } else {
    return hn::GatherIndex(d, table.data(), code);
  }
}

/// out[e * kLanes, a vector] = value(code, e) for 16 codes of four bits, those at `shift` (0 or 4) of 16 bytes of each
/// row.
template <typename Value>
HWY_INLINE void put_codes(const Words* bytes, int shift, float* out, const Value& value) {
  HWY_UNROLL(4)
  for (int word = 0; word < 4; ++word) {
    HWY_UNROLL(4)
    for (int byte = 0; byte < 4; ++byte) {
      const int element = 4 * word + byte;
      put(value(field(bytes[word], 8 * byte + shift, 4), element), out + element * kLanes);
    }
  }
}
/// The same for both halves of 16 bytes: elements 0 to 15, then 16 to 31.
template <typename Value>
HWY_INLINE void put_both(const Words* bytes, float* out, const Value& value) {
  put_codes(bytes, 0, out, value);
  put_codes(bytes, 4, out + kHalf * kLanes,
            [&](IntVector code, int element) HWY_ATTR { return value(code, element + static_cast<int>(kHalf)); });
}
/// The same for 32 bytes in two runs of 16.
template <typename Value>
HWY_INLINE void put_row(const Words* bytes, int shift, float* out, const Value& value) {
  put_codes(bytes, shift, out, value);
  put_codes(bytes + 4, shift, out + kHalf * kLanes,
            [&](IntVector code, int element) HWY_ATTR { return value(code, element + static_cast<int>(kHalf)); });
}

/// 16 where the lane's bit of `bits`, from `first` on, is set.
HWY_INLINE IntVector fifth_bit(std::uint32_t bits, std::int64_t first) {
  const auto shifted = hn::Shr(hn::Set(WordTag(), bits), hn::Iota(WordTag(), static_cast<std::uint32_t>(first)));
  return hn::BitCast(IntTag(), hn::ShiftLeft<4>(hn::And(shifted, hn::Set(WordTag(), 1u))));
}
/// 16 where bit `element` of the lane is set.
HWY_INLINE IntVector fifth_bit(Words bits, int element) { return hn::ShiftLeft<4>(field(bits, element, 1)); }

struct Q4_0 {  // f16 d, 16 bytes: element i in the lower half of byte i, i + 16 in the upper; (q - 8) d
  static constexpr std::int64_t kUnits = 1, kBytes = 18;
  static HWY_INLINE FloatVector value(IntVector q, FloatVector d) {
    constexpr Table kValues = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    return hn::Mul(kLanes == 16 ? look_up(kValues, q) : real(minus(q, 8)), d);
  }
  static HWY_INLINE void unit(const std::byte* block, std::int64_t, float* out) {
    const FloatVector d = half_scale(block);
    for (std::int64_t i = 0; i < kHalf; i += kLanes) {
      const IntVector q = load_bytes(block + 2 + i);
      put(value(masked(q, 15), d), out + i);
      put(value(hn::ShiftRight<4>(q), d), out + kHalf + i);
    }
  }
  static HWY_INLINE void columns(Blocks blocks, std::int64_t, float* out) {
    const FloatVector d = half_scales(blocks, 0);
    Words bytes[4];
    load_transposed(blocks, 2, bytes);
    put_both(bytes, out, [&](IntVector q, int) HWY_ATTR { return value(q, d); });
  }
};

struct Q4_1 {  // f16 d, f16 m, 16 bytes as Q4_0; q d + m
  static constexpr std::int64_t kUnits = 1, kBytes = 20;
  static HWY_INLINE void unit(const std::byte* block, std::int64_t, float* out) {
    const FloatVector d = half_scale(block), m = half_scale(block + 2);
    for (std::int64_t i = 0; i < kHalf; i += kLanes) {
      const IntVector q = load_bytes(block + 4 + i);
      put(hn::MulAdd(real(masked(q, 15)), d, m), out + i);
      put(hn::MulAdd(real(hn::ShiftRight<4>(q)), d, m), out + kHalf + i);
    }
  }
  static HWY_INLINE void columns(Blocks blocks, std::int64_t, float* out) {
    const Words scales = gather_words(blocks, 0);
    const FloatVector d = lower_scale(scales), m = upper_scale(scales);
    Words bytes[4];
    load_transposed(blocks, 4, bytes);
    put_both(bytes, out, [&](IntVector q, int) HWY_ATTR { return hn::MulAdd(real(q), d, m); });
  }
};

struct Q5_0 {  // f16 d, u32 of fifth bits, 16 bytes as Q4_0; (q - 16) d
  static constexpr std::int64_t kUnits = 1, kBytes = 22;
  static HWY_INLINE FloatVector value(IntVector low, IntVector high, FloatVector d) {
    return hn::Mul(real(minus(hn::Or(low, high), 16)), d);
  }
  static HWY_INLINE void unit(const std::byte* block, std::int64_t, float* out) {
    const FloatVector d = half_scale(block);
    const auto high = read<std::uint32_t>(block + 2);
    for (std::int64_t i = 0; i < kHalf; i += kLanes) {
      const IntVector q = load_bytes(block + 6 + i);
      put(value(masked(q, 15), fifth_bit(high, i), d), out + i);
      put(value(hn::ShiftRight<4>(q), fifth_bit(high, kHalf + i), d), out + kHalf + i);
    }
  }
  static HWY_INLINE void columns(Blocks blocks, std::int64_t, float* out) {
    const FloatVector d = half_scales(blocks, 0);
    const Words high = gather_words(blocks, 2);
    Words bytes[4];
    load_transposed(blocks, 6, bytes);
    put_both(bytes, out, [&](IntVector q, int element) HWY_ATTR { return value(q, fifth_bit(high, element), d); });
  }
};

struct Q5_1 {  // f16 d, f16 m, u32 of fifth bits, 16 bytes as Q4_0; q d + m
  static constexpr std::int64_t kUnits = 1, kBytes = 24;
  static HWY_INLINE void unit(const std::byte* block, std::int64_t, float* out) {
    const FloatVector d = half_scale(block), m = half_scale(block + 2);
    const auto high = read<std::uint32_t>(block + 4);
    for (std::int64_t i = 0; i < kHalf; i += kLanes) {
      const IntVector q = load_bytes(block + 8 + i);
      put(hn::MulAdd(real(hn::Or(masked(q, 15), fifth_bit(high, i))), d, m), out + i);
      put(hn::MulAdd(real(hn::Or(hn::ShiftRight<4>(q), fifth_bit(high, kHalf + i))), d, m), out + kHalf + i);
    }
  }
  static HWY_INLINE void columns(Blocks blocks, std::int64_t, float* out) {
    const Words scales = gather_words(blocks, 0), high = gather_words(blocks, 4);
    const FloatVector d = lower_scale(scales), m = upper_scale(scales);
    Words bytes[4];
    load_transposed(blocks, 8, bytes);
    put_both(bytes, out, [&](IntVector q, int element) HWY_ATTR {
      return hn::MulAdd(real(hn::Or(q, fifth_bit(high, element))), d, m);
    });
  }
};

struct Q8_0 {  // f16 d, 32 signed bytes; q d
  static constexpr std::int64_t kUnits = 1, kBytes = 34;
  static HWY_INLINE void unit(const std::byte* block, std::int64_t, float* out) {
    const FloatVector d = half_scale(block);
    for (std::int64_t i = 0; i < kUnit; i += kLanes) put(hn::Mul(real(load_signed_bytes(block + 2 + i)), d), out + i);
  }
  static HWY_INLINE void columns(Blocks blocks, std::int64_t, float* out) {
    const FloatVector d = half_scales(blocks, 0);
    for (std::int64_t i = 0; i < kUnit; i += kHalf) {
      Words bytes[4];
      load_transposed(blocks, 2 + i, bytes);
      HWY_UNROLL(16)
      for (int e = 0; e < 16; ++e) put(hn::Mul(real(signed_byte(bytes[e / 4], e % 4)), d), out + (i + e) * kLanes);
    }
  }
};

inline constexpr Table kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

struct Iq4Nl {  // f16 d, 16 bytes as Q4_0; values[q] d
  static constexpr std::int64_t kUnits = 1, kBytes = 18;
  static HWY_INLINE void codes(const std::byte* bytes, FloatVector d, float* out) {
    for (std::int64_t i = 0; i < kHalf; i += kLanes) {
      const IntVector q = load_bytes(bytes + i);
      put(hn::Mul(look_up(kIq4Values, masked(q, 15)), d), out + i);
      put(hn::Mul(look_up(kIq4Values, hn::ShiftRight<4>(q)), d), out + kHalf + i);
    }
  }
  static HWY_INLINE void codes(Blocks blocks, std::int64_t offset, FloatVector d, float* out) {
    Words bytes[4];
    load_transposed(blocks, offset, bytes);
    put_both(bytes, out, [&](IntVector q, int) HWY_ATTR { return hn::Mul(look_up(kIq4Values, q), d); });
  }
  static HWY_INLINE void unit(const std::byte* block, std::int64_t, float* out) {
    codes(block + 2, half_scale(block), out);
  }
  static HWY_INLINE void columns(Blocks blocks, std::int64_t, float* out) {
    codes(blocks, 2, half_scales(blocks, 0), out);
  }
};

struct Iq4Xs {  // f16 d, u16 of two upper bits of a scale, 4 bytes of four lower ones, units as Iq4Nl; values[q] d (s -
                // 32)
  static constexpr std::int64_t kUnits = 8, kBytes = 136;
  static HWY_INLINE void unit(const std::byte* block, std::int64_t unit, float* out) {
    const int low = read<std::uint8_t>(block + 4 + unit / 2) >> unit % 2 * 4 & 15;
    const int high = read<std::uint16_t>(block + 2) >> 2 * unit & 3;
    const auto scale = static_cast<float>((low | high << 4) - 32);
    Iq4Nl::codes(block + 8 + unit * kHalf, hn::Mul(half_scale(block), hn::Set(FloatTag(), scale)), out);
  }
  static HWY_INLINE void columns(Blocks blocks, std::int64_t unit, float* out) {
    const Words head = gather_words(blocks, 0), lower = gather_words(blocks, 4);
    const auto u = static_cast<int>(unit);
    const IntVector scale = hn::Or(field(lower, 4 * u, 4), hn::ShiftLeft<4>(field(head, 16 + 2 * u, 2)));
    Iq4Nl::codes(blocks, 8 + unit * kHalf, hn::Mul(lower_scale(head), real(minus(scale, 32))), out);
  }
};

/// 32 elements of bitsandbytes' four bits from 16 bytes, the upper half of a byte first.
template <DType kType>
HWY_INLINE void four_bit_unit(const std::byte* codes, float scale, float* out) {
  constexpr std::size_t kBytes = 8;  // at a time, 16 elements
  const hn::FixedTag<std::uint16_t, kBytes> pairs;
  const hn::FixedTag<std::uint8_t, kBytes> bytes;
  const FloatVector factor = hn::Set(FloatTag(), scale);
  for (std::int64_t i = 0; i < kHalf; i += static_cast<std::int64_t>(kBytes)) {
    const auto byte = hn::PromoteTo(pairs, hn::LoadU(bytes, reinterpret_cast<const std::uint8_t*>(codes) + i));
    const auto ordered = hn::Or(hn::ShiftRight<4>(byte), hn::ShiftLeft<8>(hn::And(byte, hn::Set(pairs, 15))));
    HWY_ALIGN std::byte list[2 * kBytes];
    hn::Store(ordered, pairs, reinterpret_cast<std::uint16_t*>(list));
    for (std::int64_t j = 0; j < kHalf; j += kLanes) {
      put(hn::Mul(look_up(four_bit_values(kType), load_bytes(list + j)), factor), out + 2 * i + j);
    }
  }
}
/// 32 elements of each row, whose codes begin `offset` bytes after the block.
template <DType kType>
HWY_INLINE void four_bit_columns(Blocks codes, std::int64_t offset, FloatVector scale, float* out) {
  Words bytes[4];
  load_transposed(codes, offset, bytes);
  HWY_UNROLL(16)
  for (int byte = 0; byte < 16; ++byte) {
    const int shift = byte % 4 * 8;
    put(hn::Mul(look_up(four_bit_values(kType), field(bytes[byte / 4], shift + 4, 4)), scale), out + 2 * byte * kLanes);
    put(hn::Mul(look_up(four_bit_values(kType), field(bytes[byte / 4], shift, 4)), scale),
        out + (2 * byte + 1) * kLanes);
  }
}

#endif

}  // namespace quantized
}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
