#pragma once

#include <optional>
#include <string>
#include <string_view>

/// GPT-2's bijection of bytes to printable characters: bytes that print stand for themselves, the others become
/// U+0100 and on. (Radford et al. 2019; encoder.py of GPT-2)
namespace heddle::byte_level {

char32_t character_of(unsigned char byte);
std::optional<unsigned char> byte_of(char32_t character);

/// Each byte as its character.
std::string encode(std::string_view bytes);
/// The bytes of a token, or nothing if it holds a character that stands for none.
std::optional<std::string> decode(std::string_view token);

}  // namespace heddle::byte_level
