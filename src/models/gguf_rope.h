#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/gguf.h"
#include "formats/json.h"

namespace heddle {

// Tensors of factors, one for each rotated pair, by which its frequency is divided: Llama 3's scaling; LongRoPE's.
inline constexpr std::string_view kRopeFactors = "rope_freqs.weight";
inline constexpr std::string_view kRopeLongFactors = "rope_factors_long.weight";
inline constexpr std::string_view kRopeShortFactors = "rope_factors_short.weight";

/// What a GGUF file's keys say of the rope; 0 and "" where they are absent.
struct GgufRope {
  double theta = 10000.0;
  std::int64_t head_dim = 0, dimensions = 0, positions = 0;
  std::string type;
  double factor = 0, attention_factor = 0, beta_fast = 0, beta_slow = 0;
  std::int64_t original_positions = 0;
};

/// Adds rope_theta, rope_scaling and partial_rotary_factor, as a config.json has them. Throws Error for what none of
/// Hugging Face's types can say.
void add_gguf_rope(const GgufFile& file, const GgufRope& rope, Json& config);

}  // namespace heddle
