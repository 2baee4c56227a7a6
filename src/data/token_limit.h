#pragma once

#include <cstdint>
#include <limits>

namespace heddle {

/// Tokens of a micro-batch at most: they are counted in 32 bits.
constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();

}  // namespace heddle
