#include "quantize/ggml_blocks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace heddle {
namespace {

constexpr int kBlock = 32;
constexpr int kHalf = kBlock / 2;  // byte j of 4-bit codes holds values j (low half) and j + 16

constexpr std::array<std::int8_t, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                    1,    13,   25,  38,  53,  69,  89,  113};

// scale fp16, 16 bytes of codes: (code - 8) * scale
void decode_q4_0(const std::uint8_t* block, float* values) {
  const float scale = load_half(block);
  for (int j = 0; j < kHalf; ++j) {
    values[j] = static_cast<float>((block[2 + j] & 15) - 8) * scale;
    values[j + kHalf] = static_cast<float>((block[2 + j] >> 4) - 8) * scale;
  }
}

// scale, minimum fp16, 16 bytes of codes: code * scale + minimum
void decode_q4_1(const std::uint8_t* block, float* values) {
  const float scale = load_half(block), minimum = load_half(block + 2);
  for (int j = 0; j < kHalf; ++j) {
    values[j] = static_cast<float>(block[4 + j] & 15) * scale + minimum;
    values[j + kHalf] = static_cast<float>(block[4 + j] >> 4) * scale + minimum;
  }
}

/// 5-bit code i: 4 bits as above, the fifth of all 32 in a word before them.
int code_of_five_bits(const std::uint8_t* high, int i) {
  std::uint32_t word = 0;
  std::memcpy(&word, high, sizeof(word));
  const std::uint8_t low = high[4 + i % kHalf];
  return (i < kHalf ? low & 15 : low >> 4) | static_cast<int>((word >> i & 1) << 4);
}

// scale fp16, 4 bytes of fifth bits, 16 bytes of codes: (code - 16) * scale
void decode_q5_0(const std::uint8_t* block, float* values) {
  const float scale = load_half(block);
  for (int i = 0; i < kBlock; ++i) values[i] = static_cast<float>(code_of_five_bits(block + 2, i) - 16) * scale;
}

// scale, minimum fp16, 4 bytes of fifth bits, 16 bytes of codes: code * scale + minimum
void decode_q5_1(const std::uint8_t* block, float* values) {
  const float scale = load_half(block), minimum = load_half(block + 2);
  for (int i = 0; i < kBlock; ++i) values[i] = static_cast<float>(code_of_five_bits(block + 4, i)) * scale + minimum;
}

// scale fp16, 32 signed bytes: code * scale
void decode_q8_0(const std::uint8_t* block, float* values) {
  const float scale = load_half(block);
  for (int i = 0; i < kBlock; ++i) values[i] = static_cast<float>(static_cast<std::int8_t>(block[2 + i])) * scale;
}

// scale fp16, 16 bytes of codes into the table
void decode_iq4_nl(const std::uint8_t* block, float* values) {
  const float scale = load_half(block);
  for (int j = 0; j < kHalf; ++j) {
    values[j] = scale * static_cast<float>(kIq4Values[block[2 + j] & 15]);
    values[j + kHalf] = scale * static_cast<float>(kIq4Values[block[2 + j] >> 4]);
  }
}

void store_half(float value, std::uint8_t* bytes) {
  const Float16 half(value);
  if (!std::isfinite(static_cast<float>(half))) fail("a block's scale is {}, beyond the range of fp16", value);
  std::memcpy(bytes, &half.bits, sizeof(half.bits));
}

/// Where the scale is so small that this overflows, fp16 has made it zero and the codes do not matter.
float inverse(float scale) {
  const float result = scale != 0.0f ? 1.0f / scale : 0.0f;
  return std::isfinite(result) ? result : 0.0f;
}

/// The value furthest from zero, the first of equal ones, with its sign.
float furthest(const float* values) {
  float best = 0.0f;
  for (int i = 0; i < kBlock; ++i) {
    if (std::fabs(values[i]) > std::fabs(best)) best = values[i];
  }
  return best;
}

/// Codes around zero: the furthest value gets the lowest code, -2^(bits-1).
template <int bits>
void encode_symmetric(const float* values, std::uint8_t* scale_bytes, std::array<std::uint8_t, kBlock>& codes) {
  constexpr int kLowest = 1 << (bits - 1), kGreatest = (1 << bits) - 1;
  const float scale = furthest(values) / static_cast<float>(-kLowest), by = inverse(scale);
  store_half(scale, scale_bytes);
  for (int i = 0; i < kBlock; ++i) {
    const float place = values[i] * by + (static_cast<float>(kLowest) + 0.5f);
    codes[i] = static_cast<std::uint8_t>(std::min(kGreatest, static_cast<int>(place)));
  }
}

/// Codes from the minimum up.
template <int bits>
void encode_from_minimum(const float* values, std::uint8_t* scale_bytes, std::array<std::uint8_t, kBlock>& codes) {
  constexpr int kGreatest = (1 << bits) - 1;
  const auto [low, high] = std::minmax_element(values, values + kBlock);
  const float minimum = *low, scale = (*high - minimum) / static_cast<float>(kGreatest), by = inverse(scale);
  store_half(scale, scale_bytes);
  store_half(minimum, scale_bytes + 2);
  for (int i = 0; i < kBlock; ++i) {
    const float place = (values[i] - minimum) * by + 0.5f;
    codes[i] = static_cast<std::uint8_t>(std::min(kGreatest, static_cast<int>(place)));
  }
}

void store_low_bits(const std::array<std::uint8_t, kBlock>& codes, std::uint8_t* bytes) {
  for (int j = 0; j < kHalf; ++j) bytes[j] = static_cast<std::uint8_t>((codes[j] & 15) | (codes[j + kHalf] & 15) << 4);
}

void store_fifth_bits(const std::array<std::uint8_t, kBlock>& codes, std::uint8_t* bytes) {
  std::uint32_t word = 0;
  for (int i = 0; i < kBlock; ++i) word |= std::uint32_t{codes[i]} >> 4 << i;
  std::memcpy(bytes, &word, sizeof(word));
}

void encode_q4_0(const float* values, std::uint8_t* block) {
  std::array<std::uint8_t, kBlock> codes{};
  encode_symmetric<4>(values, block, codes);
  store_low_bits(codes, block + 2);
}

void encode_q4_1(const float* values, std::uint8_t* block) {
  std::array<std::uint8_t, kBlock> codes{};
  encode_from_minimum<4>(values, block, codes);
  store_low_bits(codes, block + 4);
}

void encode_q5_0(const float* values, std::uint8_t* block) {
  std::array<std::uint8_t, kBlock> codes{};
  encode_symmetric<5>(values, block, codes);
  store_fifth_bits(codes, block + 2);
  store_low_bits(codes, block + 6);
}

void encode_q5_1(const float* values, std::uint8_t* block) {
  std::array<std::uint8_t, kBlock> codes{};
  encode_from_minimum<5>(values, block, codes);
  store_fifth_bits(codes, block + 4);
  store_low_bits(codes, block + 8);
}

void encode_q8_0(const float* values, std::uint8_t* block) {
  const float scale = std::fabs(furthest(values)) / 127.0f, by = inverse(scale);
  store_half(scale, block);
  for (int i = 0; i < kBlock; ++i)
    block[2 + i] = static_cast<std::uint8_t>(static_cast<int>(std::round(values[i] * by)));
}

}  // namespace

const std::span<const std::int8_t, 16> iq4_values = kIq4Values;

float load_half(const std::uint8_t* bytes) {
  Float16 half;
  std::memcpy(&half.bits, bytes, sizeof(half.bits));
  return static_cast<float>(half);
}

DecodeBlock ggml_decoder(DType type) {
  switch (type) {
    case DType::q4_0: return decode_q4_0;
    case DType::q4_1: return decode_q4_1;
    case DType::q5_0: return decode_q5_0;
    case DType::q5_1: return decode_q5_1;
    case DType::q8_0: return decode_q8_0;
    case DType::iq4_nl: return decode_iq4_nl;
    default: return super_block_decoder(type);
  }
}

EncodeBlock ggml_encoder(DType type) {
  switch (type) {
    case DType::q4_0: return encode_q4_0;
    case DType::q4_1: return encode_q4_1;
    case DType::q5_0: return encode_q5_0;
    case DType::q5_1: return encode_q5_1;
    case DType::q8_0: return encode_q8_0;
    default: return nullptr;
  }
}

}  // namespace heddle
