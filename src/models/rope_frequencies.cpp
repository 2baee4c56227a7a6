#include "models/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace heddle {
namespace {

using std::numbers::pi;

/// theta^(-2i/R) for the pairs i of R rotated dimensions.
std::vector<double> standard_frequencies(double theta, std::int64_t dimensions) {
  std::vector<double> inv_freq;
  inv_freq.reserve(static_cast<std::size_t>(dimensions / 2));
  for (std::int64_t i = 0; i < dimensions; i += 2) {
    inv_freq.push_back(1.0 / std::pow(theta, static_cast<double>(i) / static_cast<double>(dimensions)));
  }
  return inv_freq;
}

/// NTK-aware scaling of the base with the length of the sequence (bloc97 and emozilla 2023; the "dynamic" type).
std::vector<double> dynamic_frequencies(const RopeConfig& rope, std::int64_t dimensions, std::int64_t max_positions,
                                        std::int64_t sequence_length) {
  const auto original = static_cast<double>(length_of_change(rope, max_positions));
  const double length = std::max(static_cast<double>(sequence_length), original);
  const double stretch = rope.factor * length / original - (rope.factor - 1.0);
  const double exponent = static_cast<double>(dimensions) / static_cast<double>(dimensions - 2);
  return standard_frequencies(rope.theta * std::pow(stretch, exponent), dimensions);
}

/// YaRN (Peng et al. 2023, arXiv:2309.00071), section 3.2: pairs that turn more than beta_fast times within the
/// original length keep their frequency, those that turn fewer than beta_slow times are interpolated, with a ramp
/// between.
std::vector<double> yarn_frequencies(const RopeConfig& rope, std::int64_t dimensions) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  const auto dims = static_cast<double>(dimensions);
  // The pair, as a real number, that turns `rotations` times within the original length.
  const auto pair_with = [&](double rotations) {
    return dims * std::log(original / (rotations * 2.0 * pi)) / (2.0 * std::log(rope.theta));
  };
  double low = pair_with(rope.beta_fast), high = pair_with(rope.beta_slow);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1.0);
  if (low == high) high += 0.001;  // as the reference does, against a division by zero

  std::vector<double> inv_freq = standard_frequencies(rope.theta, dimensions);
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const double interpolated = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inv_freq[i] = inv_freq[i] / rope.factor * interpolated + inv_freq[i] * (1.0 - interpolated);
  }
  return inv_freq;
}

/// YaRN, section 3.4: sqrt(1/t) = 0.1 ln(factor) + 1. The two mscales are DeepSeek's.
double yarn_attention_factor(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  const auto scale = [&](double mscale) {
    return rope.factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(rope.factor) + 1.0;
  };
  if (rope.mscale != 0 && rope.mscale_all_dim != 0) return scale(rope.mscale) / scale(rope.mscale_all_dim);
  return scale(1.0);
}

/// Llama 3.1's scaling by wavelength: long waves are divided by the factor, short ones kept, with a ramp between.
std::vector<double> llama3_frequencies(const RopeConfig& rope, std::int64_t dimensions) {
  const auto original = static_cast<double>(rope.original_max_position_embeddings);
  std::vector<double> inv_freq = standard_frequencies(rope.theta, dimensions);
  for (double& frequency : inv_freq) {
    const double wavelength = 2.0 * pi / frequency;
    if (wavelength > original / rope.low_freq_factor) {
      frequency /= rope.factor;
    } else if (wavelength >= original / rope.high_freq_factor) {
      const double smooth =
          (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      frequency = (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
    }
  }
  return inv_freq;
}

/// LongRoPE (Ding et al. 2024, arXiv:2402.13753): a searched factor for each pair.
std::vector<double> longrope_frequencies(const RopeConfig& rope, std::int64_t dimensions,
                                         std::int64_t sequence_length) {
  const bool is_long = sequence_length > rope.original_max_position_embeddings;
  const std::vector<double>& factors = is_long ? rope.long_factor : rope.short_factor;
  std::vector<double> inv_freq = standard_frequencies(rope.theta, dimensions);
  HEDDLE_CHECK(factors.size() == inv_freq.size());
  for (std::size_t i = 0; i < inv_freq.size(); ++i) inv_freq[i] /= factors[i];
  return inv_freq;
}

double longrope_attention_factor(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.factor <= 1.0) return 1.0;
  return std::sqrt(1.0 + std::log(rope.factor) / std::log(static_cast<double>(rope.original_max_position_embeddings)));
}

}  // namespace

std::int64_t rotary_dimensions(const RopeConfig& rope, std::int64_t head_dim) {
  return static_cast<std::int64_t>(static_cast<double>(head_dim) * rope.partial_rotary_factor);
}

std::int64_t length_of_change(const RopeConfig& rope, std::int64_t max_positions) {
  const std::int64_t own = rope.original_max_position_embeddings;
  switch (rope.type) {
    case RopeType::dynamic: return own > 0 ? own : max_positions;
    case RopeType::longrope: return own;
    default: return 0;
  }
}

RopeFrequencies rope_frequencies(const RopeConfig& rope, std::int64_t head_dim, std::int64_t max_positions,
                                 std::int64_t sequence_length) {
  const std::int64_t dimensions = rotary_dimensions(rope, head_dim);
  HEDDLE_CHECK(dimensions > 0 && dimensions % 2 == 0);
  switch (rope.type) {
    case RopeType::none: break;
    case RopeType::standard: return {standard_frequencies(rope.theta, dimensions), 1.0};
    case RopeType::linear: {
      RopeFrequencies result{standard_frequencies(rope.theta, dimensions), 1.0};
      for (double& frequency : result.inv_freq) frequency /= rope.factor;
      return result;
    }
    case RopeType::dynamic: return {dynamic_frequencies(rope, dimensions, max_positions, sequence_length), 1.0};
    case RopeType::yarn: return {yarn_frequencies(rope, dimensions), yarn_attention_factor(rope)};
    case RopeType::llama3: return {llama3_frequencies(rope, dimensions), 1.0};
    case RopeType::longrope:
      return {longrope_frequencies(rope, dimensions, sequence_length), longrope_attention_factor(rope)};
  }
  fail("internal: rope_frequencies of a model without rotary embedding");
}

}  // namespace heddle
