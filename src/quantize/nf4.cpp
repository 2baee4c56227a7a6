#include "quantize/nf4.h"

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

constexpr std::array<float, 15> kMidpoints = midpoints(kNf4Values);

/// The code of the value nearest to x; NaN takes the last.
unsigned nearest_code(float x) {
  unsigned code = 0;
  for (const float midpoint : kMidpoints) code += midpoint >= x ? 0u : 1u;
  return code;
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
  static const std::array<float, 255> kScaleMidpoints = midpoints(nf4_scale_values());
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

const std::array<float, 256>& nf4_scale_values() {
  static const std::array<float, 256> kValues = dynamic_map_values(true);
  return kValues;
}

Nf4Layout::Nf4Layout(DType type, std::int64_t elements)
    : blocks(ceil_div(elements, kNf4Block)),
      nested_blocks(type == DType::nf4_double ? ceil_div(blocks, kNf4NestedBlock) : 0),
      scales(ceil_div(elements, 8) * 4),
      nested_scales(scales + ceil_div(blocks, 4) * 4),
      mean(nested_scales + 4 * nested_blocks) {
  HEDDLE_CHECK(type == DType::nf4 || type == DType::nf4_double);
}

void encode_nf4_blocks(std::span<const float> values, std::byte* codes, float* scales) {
  constexpr float kLeast = 1e-38f;  // what bitsandbytes divides by at least
  for (std::size_t begin = 0; begin < values.size(); begin += kNf4Block) {
    const auto block = values.subspan(begin, std::min<std::size_t>(kNf4Block, values.size() - begin));
    const bool whole = block.size() == kNf4Block;
    const float scale = greatest_magnitude(block);
    const float divisor = scale < kLeast ? kLeast : scale;
    *scales++ = whole ? scale : divisor;
    const auto code_of = [&](std::size_t i) {
      if (i >= block.size()) return nearest_code(0.0f);
      // A short block is divided, a whole one multiplied by the inverse, as bitsandbytes does.
      const float scaled = whole ? block[i] * (1.0f / divisor) : block[i] / divisor;
      return nearest_code(std::clamp(scaled, -1.0f, 1.0f));
    };
    for (std::size_t i = 0; i < block.size(); i += 2) {
      *codes++ = static_cast<std::byte>(code_of(i) << 4 | code_of(i + 1));
    }
  }
}

void encode_nf4_scales(std::span<const float> scales, float mean, std::byte* codes, float* nested_scales) {
  std::array<float, kNf4NestedBlock> shifted{};
  for (std::size_t begin = 0; begin < scales.size(); begin += kNf4NestedBlock) {
    const auto block = scales.subspan(begin, std::min<std::size_t>(kNf4NestedBlock, scales.size() - begin));
    std::transform(block.begin(), block.end(), shifted.begin(), [&](float scale) { return scale - mean; });
    const float nested = greatest_magnitude(std::span(shifted).first(block.size()));
    *nested_scales++ = nested;
    for (std::size_t i = 0; i < block.size(); ++i) {
      const bool has_code = nested > 0.0f;  // neither zero, which bitsandbytes gives the first code, nor NaN
      *codes++ = static_cast<std::byte>(has_code ? nearest_scale_code(shifted[i] * (1.0f / nested)) : 0u);
    }
  }
}

float mean_nf4_scale(std::span<const float> scales) {
  double sum = 0.0;
  for (const float scale : scales) sum += static_cast<double>(scale);
  return scales.empty() ? 0.0f : static_cast<float>(sum / static_cast<double>(scales.size()));
}

Nf4Encoder::Nf4Encoder(DType type, std::int64_t elements, std::span<std::byte> tensor)
    : type_(type),
      elements_(elements),
      tensor_(tensor),
      layout_(type, elements),
      scales_(static_cast<std::size_t>(layout_.blocks)) {
  HEDDLE_CHECK(static_cast<std::int64_t>(tensor.size()) == storage_bytes(type, elements));
  std::fill(tensor.begin(), tensor.end(), std::byte{0});
}

void Nf4Encoder::encode(std::int64_t begin, std::span<const float> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  HEDDLE_CHECK(begin % kNf4Block == 0 && begin + count <= elements_);
  HEDDLE_CHECK(count % kNf4Block == 0 || begin + count == elements_);
  encode_nf4_blocks(values, tensor_.data() + begin / 2, scales_.data() + begin / kNf4Block);
}

void Nf4Encoder::finish() {
  std::byte* tensor = tensor_.data();
  if (type_ == DType::nf4) {
    std::memcpy(tensor + layout_.scales, scales_.data(), scales_.size() * sizeof(float));
    return;
  }
  const float mean = mean_nf4_scale(scales_);
  std::vector<float> nested(static_cast<std::size_t>(layout_.nested_blocks));
  encode_nf4_scales(scales_, mean, tensor + layout_.scales, nested.data());
  std::memcpy(tensor + layout_.nested_scales, nested.data(), nested.size() * sizeof(float));
  std::memcpy(tensor + layout_.mean, &mean, sizeof(mean));
}

float nf4_scale(DType type, const Nf4Layout& layout, const std::byte* tensor, std::int64_t block) {
  if (type == DType::nf4) return read_float(tensor + layout.scales + 4 * block);
  const auto code = std::to_integer<std::size_t>(tensor[layout.scales + block]);
  const float nested = read_float(tensor + layout.nested_scales + 4 * (block / kNf4NestedBlock));
  return nf4_scale_values()[code] * nested + read_float(tensor + layout.mean);
}

void decode_nf4(DType type, const std::byte* tensor, std::int64_t elements, std::int64_t begin, std::int64_t count,
                float* out) {
  const Nf4Layout layout(type, elements);
  const std::int64_t end = begin + count;
  while (begin < end) {
    const std::int64_t block = begin / kNf4Block, block_end = std::min(end, (block + 1) * kNf4Block);
    const float scale = nf4_scale(type, layout, tensor, block);
    for (; begin < block_end; ++begin) {
      const auto pair = std::to_integer<unsigned>(tensor[begin / 2]);
      *out++ = kNf4Values[begin % 2 == 0 ? pair >> 4 : pair & 15u] * scale;
    }
  }
}

}  // namespace heddle
