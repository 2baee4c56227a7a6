#include "data/jinja/characters.h"

#include <utf8proc.h>

#include <algorithm>

#include "data/jinja/special_casing.h"

namespace heddle::jinja {
namespace {

/// Calls visit(code, offset, length) for each character.
template <typename Visit>
void for_each(std::string_view text, Visit&& visit) {
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length] = unicode::decode(text.data() + at);
    visit(code, at, static_cast<std::size_t>(length));
    at += static_cast<std::size_t>(length);
  }
}

int category(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

char32_t simple(utf8proc_int32_t (*map)(utf8proc_int32_t), char32_t code) {
  return static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(code)));
}

void append_upper(std::string& out, char32_t code) {
  const std::string_view special = special_upper(code);
  if (special.empty()) return unicode::append(out, simple(utf8proc_toupper, code));
  out += special;
}

void append_title(std::string& out, char32_t code) {
  const std::string_view special = special_title(code);
  if (special.empty()) return unicode::append(out, simple(utf8proc_totitle, code));
  out += special;
}

/// Letters that a sigma looks past when it asks whether it ends a word.
bool is_case_ignorable(char32_t code) {
  switch (category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: break;
  }
  constexpr std::u32string_view kOthers =
      U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A";
  return kOthers.find(code) != std::u32string_view::npos;
}

/// The Unicode Standard, 3.13: a sigma that ends a word is written otherwise.
bool is_final_sigma(std::string_view text, std::size_t at) {
  bool follows_letter = false;
  for (std::size_t before = at; before > 0;) {
    const auto [code, length] = unicode::decode_before(text, before);
    before -= static_cast<std::size_t>(length);
    if (is_case_ignorable(code)) continue;
    follows_letter = has_case(code);
    break;
  }
  if (!follows_letter) return false;
  for (std::size_t after = at + 2; after < text.size();) {
    const auto [code, length] = unicode::decode(text.data() + after);
    after += static_cast<std::size_t>(length);
    if (!is_case_ignorable(code)) return !has_case(code);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, std::size_t at, char32_t code) {
  if (code == U'\u03A3') {
    out += is_final_sigma(text, at) ? "\u03C2" : "\u03C3";
  } else if (code == U'\u0130') {
    out += "i\u0307";
  } else {
    unicode::append(out, simple(utf8proc_tolower, code));
  }
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}
char ascii_upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
char ascii_lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

}  // namespace

bool is_space(char32_t code) {
  if (code < 0x80) return (code >= 9 && code <= 13) || (code >= 28 && code <= 32);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_printable(char32_t code) {
  if (code < 0x7F) return code >= 0x20;
  switch (category(code)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_alphabetic(char32_t code) {
  const int c = category(code);
  return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT ||
         c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t code) { return category(code) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t code) {
  return is_decimal(code) || code == 0xB2 || code == 0xB3 || code == 0xB9 || code == 0x2070 ||
         (code >= 0x2074 && code <= 0x2079) || (code >= 0x2080 && code <= 0x2089) ||
         (code >= 0x2460 && code <= 0x2468) || (code >= 0x2474 && code <= 0x247C) ||
         (code >= 0x2488 && code <= 0x2490) || code == 0x24EA || (code >= 0x24F5 && code <= 0x24FD) || code == 0x24FF ||
         (code >= 0x2776 && code <= 0x277E) || (code >= 0x2780 && code <= 0x2788) || (code >= 0x278A && code <= 0x2792);
}
bool is_numeric(char32_t code) {
  const int c = category(code);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO || is_numeral_letter(code);
}
bool is_upper(char32_t code) {
  if (code < 0x80) return code >= 'A' && code <= 'Z';
  return category(code) == UTF8PROC_CATEGORY_LU || (code >= 0x2160 && code <= 0x216F) ||
         (code >= 0x24B6 && code <= 0x24CF) || (code >= 0x1F130 && code <= 0x1F149) ||
         (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
}
bool is_lower(char32_t code) {
  if (code < 0x80) return code >= 'a' && code <= 'z';
  return category(code) == UTF8PROC_CATEGORY_LL || is_other_lowercase(code);
}
bool is_title(char32_t code) { return category(code) == UTF8PROC_CATEGORY_LT; }
bool is_word(char32_t code) { return code == '_' || is_alphabetic(code) || is_numeric(code); }

bool is_identifier(std::string_view text) {
  bool is_first = true, holds = !text.empty();
  for_each(text, [&](char32_t code, std::size_t, std::size_t) {
    const int c = category(code);
    const bool starts = code == '_' || is_alphabetic(code) || c == UTF8PROC_CATEGORY_NL;
    const bool goes_on = c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC ||
                         c == UTF8PROC_CATEGORY_PC || code == 0xB7 || code == 0x387;
    holds = holds && (starts || (goes_on && !is_first));
    is_first = false;
  });
  return holds;
}

std::string upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (is_ascii(text)) {
    std::transform(text.begin(), text.end(), std::back_inserter(out), ascii_upper);
    return out;
  }
  for_each(text, [&](char32_t code, std::size_t, std::size_t) { append_upper(out, code); });
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (is_ascii(text)) {
    std::transform(text.begin(), text.end(), std::back_inserter(out), ascii_lower);
    return out;
  }
  for_each(text, [&](char32_t code, std::size_t at, std::size_t) { append_lower(out, text, at, code); });
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for_each(text, [&](char32_t code, std::size_t at, std::size_t) {
    in_word ? append_lower(out, text, at, code) : append_title(out, code);
    in_word = has_case(code);
  });
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  for_each(text, [&](char32_t code, std::size_t at, std::size_t) {
    at > 0 ? append_lower(out, text, at, code) : append_title(out, code);
  });
  return out;
}

std::string swapcase(std::string_view text) {
  std::string out;
  for_each(text, [&](char32_t code, std::size_t at, std::size_t length) {
    if (is_upper(code)) {
      append_lower(out, text, at, code);
    } else if (is_lower(code)) {
      append_upper(out, code);
    } else {
      out.append(text, at, length);
    }
  });
  return out;
}

std::string casefold(std::string_view text) {
  std::string out;
  for_each(text, [&](char32_t code, std::size_t, std::size_t) {
    utf8proc_int32_t folded[8];
    int last_class = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), folded, 8, UTF8PROC_CASEFOLD, &last_class);
    for (utf8proc_ssize_t i = 0; i < count; ++i) unicode::append(out, static_cast<char32_t>(folded[i]));
  });
  return out;
}

std::size_t length_of(std::string_view text) {
  std::size_t length = 0;
  for (const char c : text) length += unicode::starts_character(c) ? 1 : 0;
  return length;
}

std::size_t offset_of(std::string_view text, std::size_t index) {
  if (index >= text.size()) return text.size();
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!unicode::starts_character(text[at])) continue;
    if (index == 0) return at;
    --index;
  }
  return text.size();
}

std::string_view strip_left(std::string_view text) {
  while (!text.empty()) {
    const auto [code, length] = unicode::decode(text.data());
    if (!is_space(code)) break;
    text.remove_prefix(static_cast<std::size_t>(length));
  }
  return text;
}

std::string_view strip_right(std::string_view text) {
  while (!text.empty()) {
    const auto [code, length] = unicode::decode_before(text, text.size());
    if (!is_space(code)) break;
    text.remove_suffix(static_cast<std::size_t>(length));
  }
  return text;
}

std::string_view strip_left(std::string_view text, std::string_view set) {
  while (!text.empty()) {
    const auto length = static_cast<std::size_t>(unicode::decode(text.data()).length);
    if (set.find(text.substr(0, length)) == std::string_view::npos) break;
    text.remove_prefix(length);
  }
  return text;
}

std::string_view strip_right(std::string_view text, std::string_view set) {
  while (!text.empty()) {
    const auto length = static_cast<std::size_t>(unicode::decode_before(text, text.size()).length);
    if (set.find(text.substr(text.size() - length)) == std::string_view::npos) break;
    text.remove_suffix(length);
  }
  return text;
}

std::size_t line_break(std::string_view text, std::size_t at) {
  switch (text[at]) {
    case '\r': return at + 1 < text.size() && text[at + 1] == '\n' ? 2 : 1;
    case '\n':
    case '\v':
    case '\f':
    case '\x1c':
    case '\x1d':
    case '\x1e': return 1;
    case '\xC2': return text[at + 1] == '\x85' ? 2 : 0;
    case '\xE2': return text[at + 1] == '\x80' && (text[at + 2] == '\xA8' || text[at + 2] == '\xA9') ? 3 : 0;
    default: return 0;
  }
}

}  // namespace heddle::jinja
