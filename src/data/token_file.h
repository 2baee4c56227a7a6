#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include <xxhash.h>

#include "base/error.h"
#include "data/token_cache.h"

/// The format of a cache file, for those who write and read it.
namespace heddle::token_file {

static_assert(std::endian::native == std::endian::little, "cache files are little-endian");
static_assert(std::has_unique_object_representations_v<TokenRow>, "rows are written as they lie in memory");

inline constexpr std::array<char, 8> kMagic = {'H', 'E', 'D', 'T', 'O', 'K', 'S', '1'};

/// A cache file: this header, ids, labels, padding to 8 bytes, rows, notes (JSON), nothing more.
struct Header {
  std::array<char, 8> magic = kMagic;
  std::array<char, 32> key{};
  std::int64_t num_ids = 0, num_labels = 0, num_rows = 0, notes_bytes = 0, stream_length = 0;
  std::uint64_t payload_low = 0, payload_high = 0;  // XXH3-128 of all that follows the header
  std::uint64_t checksum = 0;                       // XXH3-64 of the fields above
};
static_assert(std::has_unique_object_representations_v<Header>);

inline std::uint64_t header_checksum(const Header& header) { return XXH3_64bits(&header, offsetof(Header, checksum)); }

inline std::span<const std::byte> as_bytes(const void* data, std::size_t size) {
  return {static_cast<const std::byte*>(data), size};
}

struct FreeHash {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};
using HashState = std::unique_ptr<XXH3_state_t, FreeHash>;

inline HashState new_hash() {
  HashState state(XXH3_createState());
  HEDDLE_CHECK(state != nullptr && XXH3_128bits_reset(state.get()) == XXH_OK);
  return state;
}

}  // namespace heddle::token_file
