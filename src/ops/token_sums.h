#pragma once

#include <cstdint>

namespace heddle {

/// Gradients of weights in linear layers are sums over tokens: over each so many tokens, from the first on, in order,
/// and these sums in order, beginning at the gradient that they are added to. So a stream that is cut at multiples of
/// it gives the same bits.
inline constexpr std::int64_t kTokenSumBlock = 320;

}  // namespace heddle
