#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "data/tokenizer/unicode.h"

/// Texts as Python sees them: as code points, with its classes of characters. All texts are valid UTF-8.
namespace heddle::jinja {

/// str.isspace: what strip() and split() take away, and \s of a regular expression.
bool is_space(char32_t code);
/// str.isprintable: repr() shows it as it is.
bool is_printable(char32_t code);
bool is_alphabetic(char32_t code);
bool is_decimal(char32_t code);
bool is_digit(char32_t code);
bool is_numeric(char32_t code);
bool is_upper(char32_t code);  // Lu and other uppercase
bool is_lower(char32_t code);
bool is_title(char32_t code);
/// A letter with case, to title(): a word goes on behind it.
inline bool has_case(char32_t code) { return is_upper(code) || is_lower(code) || is_title(code); }
/// \w of a regular expression.
bool is_word(char32_t code);
/// str.isidentifier
bool is_identifier(std::string_view text);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string title(std::string_view text);
std::string capitalize(std::string_view text);
std::string swapcase(std::string_view text);
std::string casefold(std::string_view text);

/// Code points.
std::size_t length_of(std::string_view text);
/// Where the character of that index begins; the end where there are not as many.
std::size_t offset_of(std::string_view text, std::size_t index);

std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
inline std::string_view strip(std::string_view text) { return strip_left(strip_right(text)); }
/// The same for any of the characters of `set`.
std::string_view strip_left(std::string_view text, std::string_view set);
std::string_view strip_right(std::string_view text, std::string_view set);

/// Length of the line break at `at`, as str.splitlines sees them; 0 where there is none.
std::size_t line_break(std::string_view text, std::size_t at);

}  // namespace heddle::jinja
