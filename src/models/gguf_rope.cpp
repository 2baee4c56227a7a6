#include "models/gguf_rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "models/rope_frequencies.h"

namespace heddle {
namespace {

std::vector<double> read_factors(const GgufFile& file, std::string_view name, std::int64_t pairs) {
  const StoredTensor& tensor = *file.find(name);
  if (tensor.dtype != DType::f32 || tensor.shape.size() != 1 || tensor.shape[0] != pairs) {
    fail("{}: tensor {} is no list of {} numbers in F32: half the rotated dimensions of a head", file.path(), name,
         pairs);
  }
  std::vector<float> values(static_cast<std::size_t>(pairs));
  file.read(tensor, 0, std::as_writable_bytes(std::span(values)));
  for (const float value : values) {
    if (!(value > 0) || !std::isfinite(value)) {
      fail("{}: tensor {} holds {}; expected positive numbers", file.path(), name, value);
    }
  }
  return {values.begin(), values.end()};
}

/// By how much each pair's frequency is divided.
std::vector<double> divisors_of(const RopeConfig& scaled, const GgufRope& rope) {
  RopeConfig plain;
  plain.theta = scaled.theta;
  const auto slow = rope_frequencies(scaled, rope.dimensions, rope.positions, 1).inv_freq;
  auto divisors = rope_frequencies(plain, rope.dimensions, rope.positions, 1).inv_freq;
  for (std::size_t i = 0; i < divisors.size(); ++i) divisors[i] /= slow[i];
  return divisors;
}

bool reproduces(const RopeConfig& scaled, const GgufRope& rope, const std::vector<double>& factors) {
  constexpr double kTolerance = 2e-6;  // the factors were computed in fp32
  if (!(scaled.high_freq_factor > scaled.low_freq_factor) || scaled.original_max_position_embeddings < 2) return false;
  const auto divisors = divisors_of(scaled, rope);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (std::abs(divisors[i] - factors[i]) > kTolerance * factors[i]) return false;
  }
  return true;
}

/// Llama 3's parameters from the factors that they gave: long waves were divided by `factor`, short ones kept, and
/// between these 1/factors are linear in the frequency. Of many parameters with the same frequencies, the published
/// ones are tried first, then low_freq_factor 1.
std::optional<RopeConfig> fit_llama3(const GgufRope& rope, const std::vector<double>& factors) {
  RopeConfig scaled;
  scaled.type = RopeType::llama3;
  scaled.theta = rope.theta;
  scaled.factor = *std::max_element(factors.begin(), factors.end());
  scaled.low_freq_factor = 1.0;
  scaled.high_freq_factor = 4.0;
  scaled.original_max_position_embeddings = rope.original_positions > 0 ? rope.original_positions : 8192;
  if (reproduces(scaled, rope, factors)) return scaled;

  RopeConfig plain;
  plain.theta = rope.theta;
  const auto frequencies = rope_frequencies(plain, rope.dimensions, rope.positions, 1).inv_freq;
  // smooth = (turns - low) / (high - low), where turns = original / wavelength.
  std::vector<std::pair<double, double>> ramp;  // 1 / wavelength, smooth
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double smooth = (1.0 / factors[i] - 1.0 / scaled.factor) / (1.0 - 1.0 / scaled.factor);
    if (smooth > 1e-6 && smooth < 1.0 - 1e-6) ramp.emplace_back(frequencies[i] / (2.0 * std::numbers::pi), smooth);
  }
  const auto try_original = [&](double original) {
    scaled.original_max_position_embeddings = std::llround(original);
    return reproduces(scaled, rope, factors);
  };
  if (ramp.size() == 1 && try_original((1.0 + 3.0 * ramp[0].second) / ramp[0].first)) return scaled;
  if (ramp.size() >= 2) {
    const auto [x0, y0] = ramp.front();
    const auto [x1, y1] = ramp.back();
    const double slope = (y1 - y0) / (x1 - x0), intercept = y0 - slope * x0;  // original/(high-low), -low/(high-low)
    if (intercept < 0) {
      const double width = -1.0 / intercept;
      scaled.high_freq_factor = std::round((1.0 + width) * 1e4) / 1e4;
      if (try_original(slope * (scaled.high_freq_factor - 1.0))) return scaled;
    }
  }
  return std::nullopt;
}

Json llama3_document(const RopeConfig& scaled) {
  return {{"rope_type", "llama3"},
          {"factor", scaled.factor},
          {"low_freq_factor", scaled.low_freq_factor},
          {"high_freq_factor", scaled.high_freq_factor},
          {"original_max_position_embeddings", scaled.original_max_position_embeddings}};
}

/// Null where the factors change nothing.
Json llama3_scaling(const GgufFile& file, const GgufRope& rope) {
  const auto factors = read_factors(file, kRopeFactors, rope.dimensions / 2);
  if (std::all_of(factors.begin(), factors.end(), [](double factor) { return factor == 1.0; })) return nullptr;
  const auto scaled = fit_llama3(rope, factors);
  if (!scaled) {
    fail("{}: tensor {} holds factors that are not those of a llama3 rope; others are not supported", file.path(),
         kRopeFactors);
  }
  return llama3_document(*scaled);
}

Json longrope_scaling(const GgufFile& file, const GgufRope& rope) {
  if (file.find(kRopeLongFactors) == nullptr || file.find(kRopeShortFactors) == nullptr) {
    fail("{}: one of {} and {} is missing", file.path(), kRopeLongFactors, kRopeShortFactors);
  }
  const std::int64_t pairs = rope.dimensions / 2;
  Json scaling = {{"type", "longrope"},
                  {"short_factor", read_factors(file, kRopeShortFactors, pairs)},
                  {"long_factor", read_factors(file, kRopeLongFactors, pairs)}};
  // Only where it is not what follows from the lengths.
  const auto original = static_cast<double>(rope.original_positions);
  const double stretch = original > 0 ? static_cast<double>(rope.positions) / original : 1.0;
  const double usual = stretch > 1.0 ? std::sqrt(1.0 + std::log(stretch) / std::log(original)) : 1.0;
  if (rope.attention_factor > 0 && std::abs(rope.attention_factor - usual) > 1e-6 * usual) {
    scaling["attention_factor"] = rope.attention_factor;
  }
  return scaling;
}

Json yarn_scaling(const GgufFile& file, const GgufRope& rope) {
  if (!(rope.factor > 0)) fail("{}: rope.scaling.type is yarn without rope.scaling.factor", file.path());
  Json scaling = {{"rope_type", "yarn"}, {"factor", rope.factor}};
  if (rope.original_positions > 0) scaling["original_max_position_embeddings"] = rope.original_positions;
  if (rope.attention_factor > 0) scaling["attention_factor"] = rope.attention_factor;
  if (rope.beta_fast > 0) scaling["beta_fast"] = rope.beta_fast;
  if (rope.beta_slow > 0) scaling["beta_slow"] = rope.beta_slow;
  return scaling;
}

Json scaling_of(const GgufFile& file, const GgufRope& rope) {
  const bool has_factors = file.find(kRopeFactors) != nullptr;
  const bool is_longrope = file.find(kRopeLongFactors) != nullptr || file.find(kRopeShortFactors) != nullptr;
  const bool is_linear = rope.type == "linear" || (rope.type.empty() && rope.factor > 0 && rope.factor != 1.0);
  if (has_factors && (is_longrope || is_linear || rope.type == "yarn")) {
    fail("{}: rope.scaling.type is {}, but there are factors in {} too", file.path(), rope.type, kRopeFactors);
  }
  if (is_longrope) return longrope_scaling(file, rope);
  if (rope.type == "longrope") fail("{}: tensor {} is missing", file.path(), kRopeLongFactors);
  if (has_factors) return llama3_scaling(file, rope);
  if (rope.type == "yarn") return yarn_scaling(file, rope);
  if (is_linear) {
    if (!(rope.factor > 0)) fail("{}: rope.scaling.type is linear without rope.scaling.factor", file.path());
    return {{"rope_type", "linear"}, {"factor", rope.factor}};
  }
  if (rope.type.empty() || rope.type == "none") return nullptr;
  fail("{}: rope.scaling.type is {}; expected none, linear, yarn or longrope", file.path(), rope.type);
}

}  // namespace

void add_gguf_rope(const GgufFile& file, const GgufRope& rope, Json& config) {
  if (rope.dimensions < 2 || rope.dimensions % 2 != 0 || rope.dimensions > rope.head_dim) {
    fail("{}: rope.dimension_count is {}; expected an even number up to a head's {}", file.path(), rope.dimensions,
         rope.head_dim);
  }
  config["rope_theta"] = rope.theta;
  config["rope_scaling"] = scaling_of(file, rope);
  if (rope.dimensions == rope.head_dim) return;
  // Times head_dim it is to give the number back, rounded down.
  double share = static_cast<double>(rope.dimensions) / static_cast<double>(rope.head_dim);
  RopeConfig partial;
  partial.partial_rotary_factor = share;
  if (rotary_dimensions(partial, rope.head_dim) < rope.dimensions) share = std::nextafter(share, 1.0);
  config["partial_rotary_factor"] = share;
}

}  // namespace heddle
