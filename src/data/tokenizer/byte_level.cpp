#include "data/tokenizer/byte_level.h"

#include <array>

#include "data/tokenizer/unicode.h"

namespace heddle::byte_level {
namespace {

struct Tables {
  std::array<char32_t, 256> characters{};
  std::array<int, 512> bytes{};

  constexpr Tables() {
    bytes.fill(-1);
    char32_t next = 256;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const bool prints = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      characters[byte] = prints ? byte : next++;
      bytes[characters[byte]] = static_cast<int>(byte);
    }
  }
};
constexpr Tables tables;

}  // namespace

char32_t character_of(unsigned char byte) { return tables.characters[byte]; }

std::optional<unsigned char> byte_of(char32_t character) {
  if (character >= tables.bytes.size() || tables.bytes[character] < 0) return std::nullopt;
  return static_cast<unsigned char>(tables.bytes[character]);
}

std::string encode(std::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) unicode::append(text, character_of(static_cast<unsigned char>(byte)));
  return text;
}

std::optional<std::string> decode(std::string_view token) {
  std::string bytes;
  bytes.reserve(token.size());
  for (std::size_t at = 0; at < token.size();) {
    const unicode::Character c = unicode::decode(token.data() + at);
    const auto byte = byte_of(c.code);
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    at += static_cast<std::size_t>(c.length);
  }
  return bytes;
}

}  // namespace heddle::byte_level
