#include "quantize/four_bit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "quantize/dynamic_map.h"

namespace heddle {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Between two neighbouring values; what lies on it takes the lower.
template <std::size_t kCount>
constexpr std::array<float, kCount - 1> midpoints(const std::array<float, kCount>& values) {
  std::array<float, kCount - 1> result{};
  for (std::size_t i = 0; i + 1 < kCount; ++i) result[i] = (values[i] + values[i + 1]) / 2.0f;
  return result;
}

/// The codes by rising values, and what lies between their values.
struct Ladder {
  constexpr explicit Ladder(const std::array<float, 16>& values) {
    for (std::size_t code = 0; code < values.size(); ++code) {
      std::size_t at = code;  // of equal values, the two zeros of FP4, the lower code comes first
      for (; at > 0 && values[codes[at - 1]] > values[code]; --at) codes[at] = codes[at - 1];
      codes[at] = static_cast<std::uint8_t>(code);
    }
    std::array<float, 16> rising{};
    for (std::size_t i = 0; i < rising.size(); ++i) rising[i] = values[codes[i]];
    between = midpoints(rising);
  }
  std::array<std::uint8_t, 16> codes{};
  std::array<float, 15> between{};
};
constexpr Ladder kNf4Ladder(kNf4Values), kFp4Ladder(kFp4Values);

/// The code of the value nearest to x; NaN takes the greatest.
unsigned nearest_code(const Ladder& ladder, float x) {
  unsigned place = 0;
  for (const float midpoint : ladder.between) place += midpoint >= x ? 0u : 1u;
  return ladder.codes[place];
}

float greatest_magnitude(std::span<const float> values) {
  float greatest = 0.0f;
  for (const float value : values) {
    if (std::isnan(value)) return value;
    greatest = std::max(greatest, std::abs(value));
  }
  return greatest;
}

/// The code of a scale in [-1, 1]. As the CPU backend of bitsandbytes, which looks it up in a table of 65,536 steps: x
/// is rounded to such a step first.
unsigned nearest_scale_code(float x) {
  constexpr float kSteps = 65535.0f;
  static const std::array<float, 255> kScaleMidpoints = midpoints(nested_scale_values());
  const float within = x > -1.0f ? std::min(x, 1.0f) : -1.0f;  // NaN takes the first
  const float step = std::floor((within + 1.0f) * 0.5f * kSteps + 0.5f);
  const float rounded = -1.0f + 2.0f * step / kSteps;
  return static_cast<unsigned>(std::lower_bound(kScaleMidpoints.begin(), kScaleMidpoints.end(), rounded) -
                               kScaleMidpoints.begin());
}

float read_float(const std::byte* from) {
  float value = 0.0f;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

}  // namespace

const std::array<float, 256>& nested_scale_values() {
  static const std::array<float, 256> kValues = dynamic_map_values(true);
  return kValues;
}

DType four_bit_type(std::string_view quant_type, bool double_quantized) {
  if (quant_type == "nf4") return double_quantized ? DType::nf4_double : DType::nf4;
  if (quant_type == "fp4") return double_quantized ? DType::fp4_double : DType::fp4;
  fail("{} is no type of four bits; expected nf4 or fp4", quant_type);
}

FourBitLayout::FourBitLayout(DType type, std::int64_t elements)
    : blocks(ceil_div(elements, kFourBitBlock)),
      nested_blocks(is_double_quantized(type) ? ceil_div(blocks, kNestedBlock) : 0),
      scales(ceil_div(elements, 8) * 4),
      nested_scales(scales + ceil_div(blocks, 4) * 4),
      mean(nested_scales + 4 * nested_blocks) {
  HEDDLE_CHECK(is_four_bit(type));
}

void encode_four_bit_blocks(DType type, std::span<const float> values, std::byte* codes, float* scales) {
  const Ladder& ladder = quant_type_of(type) == "fp4" ? kFp4Ladder : kNf4Ladder;
  constexpr float kLeast = 1e-38f;  // what bitsandbytes divides by at least
  for (std::size_t begin = 0; begin < values.size(); begin += kFourBitBlock) {
    const auto block = values.subspan(begin, std::min<std::size_t>(kFourBitBlock, values.size() - begin));
    const bool whole = block.size() == kFourBitBlock;
    const float scale = greatest_magnitude(block);
    const float divisor = scale < kLeast ? kLeast : scale;
    *scales++ = whole ? scale : divisor;
    const auto code_of = [&](std::size_t i) {
      if (i >= block.size()) return nearest_code(ladder, 0.0f);
      // A short block is divided, a whole one multiplied by the inverse, as bitsandbytes does.
      const float scaled = whole ? block[i] * (1.0f / divisor) : block[i] / divisor;
      return nearest_code(ladder, std::clamp(scaled, -1.0f, 1.0f));
    };
    for (std::size_t i = 0; i < block.size(); i += 2) {
      *codes++ = static_cast<std::byte>(code_of(i) << 4 | code_of(i + 1));
    }
  }
}

void encode_nested_scales(std::span<const float> scales, float mean, std::byte* codes, float* nested_scales) {
  std::array<float, kNestedBlock> shifted{};
  for (std::size_t begin = 0; begin < scales.size(); begin += kNestedBlock) {
    const auto block = scales.subspan(begin, std::min<std::size_t>(kNestedBlock, scales.size() - begin));
    std::transform(block.begin(), block.end(), shifted.begin(), [&](float scale) { return scale - mean; });
    const float nested = greatest_magnitude(std::span(shifted).first(block.size()));
    *nested_scales++ = nested;
    for (std::size_t i = 0; i < block.size(); ++i) {
      const bool has_code = nested > 0.0f;  // neither zero, which bitsandbytes gives the first code, nor NaN
      *codes++ = static_cast<std::byte>(has_code ? nearest_scale_code(shifted[i] * (1.0f / nested)) : 0u);
    }
  }
}

float mean_scale(std::span<const float> scales) {
  double sum = 0.0;
  for (const float scale : scales) sum += static_cast<double>(scale);
  return scales.empty() ? 0.0f : static_cast<float>(sum / static_cast<double>(scales.size()));
}

FourBitEncoder::FourBitEncoder(DType type, std::int64_t elements, std::span<std::byte> tensor)
    : type_(type),
      elements_(elements),
      tensor_(tensor),
      layout_(type, elements),
      scales_(static_cast<std::size_t>(layout_.blocks)) {
  HEDDLE_CHECK(static_cast<std::int64_t>(tensor.size()) == storage_bytes(type, elements));
  std::fill(tensor.begin(), tensor.end(), std::byte{0});
}

void FourBitEncoder::encode(std::int64_t begin, std::span<const float> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  HEDDLE_CHECK(begin % kFourBitBlock == 0 && begin + count <= elements_);
  HEDDLE_CHECK(count % kFourBitBlock == 0 || begin + count == elements_);
  encode_four_bit_blocks(type_, values, tensor_.data() + begin / 2, scales_.data() + begin / kFourBitBlock);
}

void FourBitEncoder::finish() {
  std::byte* tensor = tensor_.data();
  if (!is_double_quantized(type_)) {
    std::memcpy(tensor + layout_.scales, scales_.data(), scales_.size() * sizeof(float));
    return;
  }
  const float mean = mean_scale(scales_);
  std::vector<float> nested(static_cast<std::size_t>(layout_.nested_blocks));
  encode_nested_scales(scales_, mean, tensor + layout_.scales, nested.data());
  std::memcpy(tensor + layout_.nested_scales, nested.data(), nested.size() * sizeof(float));
  std::memcpy(tensor + layout_.mean, &mean, sizeof(mean));
}

float four_bit_scale(DType type, const FourBitLayout& layout, const std::byte* tensor, std::int64_t block) {
  if (!is_double_quantized(type)) return read_float(tensor + layout.scales + 4 * block);
  const auto code = std::to_integer<std::size_t>(tensor[layout.scales + block]);
  const float nested = read_float(tensor + layout.nested_scales + 4 * (block / kNestedBlock));
  return nested_scale_values()[code] * nested + read_float(tensor + layout.mean);
}

void decode_four_bit(DType type, const std::byte* tensor, std::int64_t elements, std::int64_t begin, std::int64_t count,
                     float* out) {
  const FourBitLayout layout(type, elements);
  const std::array<float, 16>& values = four_bit_values(type);
  const std::int64_t end = begin + count;
  while (begin < end) {
    const std::int64_t block = begin / kFourBitBlock, block_end = std::min(end, (block + 1) * kFourBitBlock);
    const float scale = four_bit_scale(type, layout, tensor, block);
    for (; begin < block_end; ++begin) {
      const auto pair = std::to_integer<unsigned>(tensor[begin / 2]);
      *out++ = values[begin % 2 == 0 ? pair >> 4 : pair & 15u] * scale;
    }
  }
}

}  // namespace heddle
