#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// UTF-8 and the character classes of Hugging Face's `tokenizers`: its regex engine's (Unicode 16), Rust's, and those
/// of the older crates it uses for BERT.
namespace heddle::unicode {

struct Character {
  char32_t code;
  int length;  // bytes
};

/// The character at `text`, which must be valid UTF-8.
inline Character decode(const char* text) {
  const auto byte = [text](int i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

/// The character that ends just before text[end]; end > 0, valid UTF-8.
Character decode_before(std::string_view text, std::size_t end);
inline bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }
void append(std::string& text, char32_t code);
std::size_t count_characters(std::string_view text);
/// The only character of `text`, if it has just one.
bool is_one_character(std::string_view text);

/// Offset of the first byte that is no UTF-8, or npos.
std::size_t find_invalid(std::string_view bytes);
/// Each maximal part of a broken sequence becomes U+FFFD, as in the WHATWG encoding standard and Rust's
/// from_utf8_lossy.
std::string to_valid(std::string_view bytes);

enum Class : std::uint16_t {
  letter = 1 << 0,       // \p{L} of Unicode 16
  number = 1 << 1,       // \p{N} of Unicode 16
  space = 1 << 2,        // White_Space: Rust's is_whitespace, \s of both regex engines
  word = 1 << 3,         // \w of Rust's regex crate
  numeric = 1 << 4,      // Rust's is_numeric
  punctuation = 1 << 5,  // ASCII punctuation, and general category P of Unicode 8
  control = 1 << 6,      // what BertNormalizer's clean_text removes, but U+0000 and U+FFFD
  nonspacing = 1 << 7,   // what BertNormalizer's strip_accents removes
  combining = 1 << 8,    // what StripAccents removes
};

/// Classes of each code point, in two stages: blocks that are equal are stored once.
class ClassTable {
 public:
  ClassTable();
  std::uint16_t of(char32_t code) const { return blocks_[block_of_[code >> 8]][code & 0xFF]; }
  bool is(char32_t code, Class c) const { return (of(code) & c) != 0; }

 private:
  std::array<std::uint16_t, 0x1100> block_of_{};
  std::vector<std::array<std::uint16_t, 256>> blocks_;
};
const ClassTable& classes();

/// General category as of Unicode 16, UTF8PROC_CATEGORY_*.
int category(char32_t code);
/// Rust's char::to_lowercase, appended.
void append_lowercase(std::string& text, char32_t code);

}  // namespace heddle::unicode
