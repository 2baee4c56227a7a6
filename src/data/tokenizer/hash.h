#pragma once

#include <cstdint>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace heddle {

/// Hash of tokens and words; the same on every machine of one byte order.
inline std::uint64_t hash_text(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

/// Mixes a pair of ids (the finalizer of MurmurHash3).
inline std::uint64_t hash_pair(std::uint64_t pair) {
  pair ^= pair >> 33;
  pair *= 0xFF51AFD7ED558CCDULL;
  pair ^= pair >> 33;
  return pair;
}

}  // namespace heddle
