#pragma once

#include <string_view>

/// What utf8proc's tables of single characters leave open, from the Unicode Character Database by way of Python. The
/// .cpp is made by scripts/make_special_casing.py.
namespace heddle::jinja {

/// Upper and title case where these are several characters, in UTF-8; else empty.
std::string_view special_upper(char32_t code);
std::string_view special_title(char32_t code);
/// Other_Lowercase: lowercase to Python though no letter of category Ll.
bool is_other_lowercase(char32_t code);
/// Letters that are numbers, such as those of Chinese.
bool is_numeral_letter(char32_t code);

}  // namespace heddle::jinja
