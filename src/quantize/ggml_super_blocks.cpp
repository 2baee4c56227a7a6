#include <array>
#include <cstring>

#include "quantize/ggml_blocks.h"

namespace heddle {
namespace {

constexpr int kSuperBlock = 256;

float scaled(float scale, int code) { return scale * static_cast<float>(code); }

// 16 bytes of (scale, minimum) in 4 bits each, one for 16 values; 64 bytes of 2-bit codes; scale, minimum fp16.
// Each half of 128 values has 32 bytes of codes: value 32 k + l of it lies in bits 2 k of byte l.
void decode_q2_k(const std::uint8_t* block, float* values) {
  const std::uint8_t* codes = block + 16;
  const float scale = load_half(block + 80), minimum = load_half(block + 82);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int half = i / 128, shift = 2 * (i % 128 / 32);
    const std::uint8_t both = block[i / 16];
    const int code = codes[32 * half + i % 32] >> shift & 3;
    values[i] = scaled(scaled(scale, both & 15), code) - scaled(minimum, both >> 4);
  }
}

/// Scale i of 16, 6 bits each: 4 in bytes 0-7, 2 in bytes 8-11.
int q3_k_scale(const std::uint8_t* scales, int i) {
  const int low = i < 8 ? scales[i] & 15 : scales[i - 8] >> 4;
  return (low | (scales[8 + i % 4] >> (2 * (i / 4)) & 3) << 4) - 32;
}

// 32 bytes of third bits (value i in bit i / 32 of byte i % 32), 64 bytes of 2-bit codes as Q2_K's, 12 bytes of scales,
// scale fp16. Without its third bit a code counts from -4.
void decode_q3_k(const std::uint8_t* block, float* values) {
  const std::uint8_t *codes = block + 32, *scales = block + 96;
  const float scale = load_half(block + 108);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int half = i / 128, shift = 2 * (i % 128 / 32);
    const int third = (block[i % 32] >> (i / 32) & 1) != 0 ? 0 : 4;
    const int code = (codes[32 * half + i % 32] >> shift & 3) - third;
    values[i] = scaled(scaled(scale, q3_k_scale(scales, i / 16)), code);
  }
}

struct ScaleAndMinimum {
  int scale, minimum;
};

/// Number i of 8, 6 bits each, in 12 bytes: whole in bytes i and i + 4 for the first four; of the others 4 bits lie in
/// byte i + 4, and 2 above those of the first.
ScaleAndMinimum k_scale(const std::uint8_t* scales, int i) {
  if (i < 4) return {scales[i] & 63, scales[i + 4] & 63};
  return {(scales[i + 4] & 15) | scales[i - 4] >> 6 << 4, scales[i + 4] >> 4 | scales[i] >> 6 << 4};
}

// scale, minimum fp16; 12 bytes of scales and minimums, one for 32 values; 128 bytes of 4-bit codes. Each 64 values
// have 32 bytes: the first 32 in the low halves.
void decode_q4_k(const std::uint8_t* block, float* values) {
  const float scale = load_half(block), minimum = load_half(block + 2);
  const std::uint8_t* codes = block + 16;
  for (int part = 0; part < 8; ++part) {
    const ScaleAndMinimum by = k_scale(block + 4, part);
    const float step = scaled(scale, by.scale), below = scaled(minimum, by.minimum);
    for (int l = 0; l < 32; ++l) {
      const std::uint8_t both = codes[32 * (part / 2) + l];
      values[32 * part + l] = scaled(step, part % 2 == 0 ? both & 15 : both >> 4) - below;
    }
  }
}

// As Q4_K, with 32 bytes of fifth bits before the codes: value 32 k + l in bit k of byte l.
void decode_q5_k(const std::uint8_t* block, float* values) {
  const float scale = load_half(block), minimum = load_half(block + 2);
  const std::uint8_t *fifth = block + 16, *codes = block + 48;
  for (int part = 0; part < 8; ++part) {
    const ScaleAndMinimum by = k_scale(block + 4, part);
    const float step = scaled(scale, by.scale), below = scaled(minimum, by.minimum);
    for (int l = 0; l < 32; ++l) {
      const std::uint8_t both = codes[32 * (part / 2) + l];
      const int low = part % 2 == 0 ? both & 15 : both >> 4;
      values[32 * part + l] = scaled(step, low + ((fifth[l] >> part & 1) << 4)) - below;
    }
  }
}

// 128 bytes of low 4 bits, 64 bytes of high 2 bits, 16 signed scales, one for 16 values; scale fp16. Each half of 128
// values has 64 and 32 bytes: value 32 k + l has its low bits in byte 32 (k % 2) + l, half k / 2, its high ones in bits
// 2 k of byte l. Codes count from -32.
void decode_q6_k(const std::uint8_t* block, float* values) {
  const std::uint8_t *low_bits = block, *high_bits = block + 128, *scales = block + 192;
  const float scale = load_half(block + 208);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int half = i / 128, k = i % 128 / 32, l = i % 32;
    const std::uint8_t both = low_bits[64 * half + 32 * (k % 2) + l];
    const int low = k < 2 ? both & 15 : both >> 4, high = high_bits[32 * half + l] >> (2 * k) & 3;
    values[i] = scaled(scaled(scale, static_cast<std::int8_t>(scales[i / 16])), (low | high << 4) - 32);
  }
}

// scale fp16; scales of 6 bits, one for 32 values: high 2 in a word, low 4 in 4 bytes; 128 bytes of codes as IQ4_NL's.
void decode_iq4_xs(const std::uint8_t* block, float* values) {
  const float scale = load_half(block);
  std::uint16_t high = 0;
  std::memcpy(&high, block + 2, sizeof(high));
  for (int part = 0; part < 8; ++part) {
    const int low = block[4 + part / 2] >> (4 * (part % 2)) & 15;
    const float step = scaled(scale, (low | (high >> (2 * part) & 3) << 4) - 32);
    const std::uint8_t* codes = block + 8 + 16 * part;
    for (int j = 0; j < 16; ++j) {
      values[32 * part + j] = scaled(step, iq4_values[codes[j] & 15]);
      values[32 * part + j + 16] = scaled(step, iq4_values[codes[j] >> 4]);
    }
  }
}

}  // namespace

DecodeBlock super_block_decoder(DType type) {
  switch (type) {
    case DType::q2_k: return decode_q2_k;
    case DType::q3_k: return decode_q3_k;
    case DType::q4_k: return decode_q4_k;
    case DType::q5_k: return decode_q5_k;
    case DType::q6_k: return decode_q6_k;
    case DType::iq4_xs: return decode_iq4_xs;
    default: return nullptr;
  }
}

}  // namespace heddle
