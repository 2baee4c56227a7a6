#include "data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>

#include "data/tokenizer/unicode_exceptions.h"

namespace heddle::unicode {
namespace {

using unicode_exceptions::Range;

const Range* find(std::span<const Range> ranges, char32_t code) {
  const auto* const after = std::upper_bound(ranges.data(), ranges.data() + ranges.size(), code,
                                             [](char32_t value, const Range& range) { return value < range.first; });
  if (after == ranges.data() || code > (after - 1)->last) return nullptr;
  return after - 1;
}

bool decide(bool expected, std::span<const Range> exceptions, char32_t code) {
  const Range* exception = find(exceptions, code);
  return exception == nullptr ? expected : exception->value != 0;
}

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_ascii_punctuation(char32_t c) {
  return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

/// Alphabetic (letters, letter numbers, Other_Alphabetic), marks, decimal digits, connectors, join controls.
bool is_word(char32_t c, bool is_letter, bool is_mark, int general) {
  return is_letter || is_mark || general == UTF8PROC_CATEGORY_ND || general == UTF8PROC_CATEGORY_NL ||
         general == UTF8PROC_CATEGORY_PC || c == 0x200C || c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) ||
         (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

std::uint16_t compute_classes(char32_t c) {
  const int general = category(c);
  const bool is_letter = general >= UTF8PROC_CATEGORY_LU && general <= UTF8PROC_CATEGORY_LO;
  const bool is_mark = general >= UTF8PROC_CATEGORY_MN && general <= UTF8PROC_CATEGORY_ME;
  const bool is_number = general >= UTF8PROC_CATEGORY_ND && general <= UTF8PROC_CATEGORY_NO;
  const bool is_punctuation =
      (general >= UTF8PROC_CATEGORY_PC && general <= UTF8PROC_CATEGORY_PO) || is_ascii_punctuation(c);
  const bool is_control =
      (general == UTF8PROC_CATEGORY_CC || general == UTF8PROC_CATEGORY_CF || general == UTF8PROC_CATEGORY_CO) &&
      c != '\t' && c != '\n' && c != '\r';
  namespace x = unicode_exceptions;
  int bits = 0;
  const auto add = [&bits](Class which, bool holds) { bits |= holds ? which : 0; };
  add(letter, is_letter);
  add(number, is_number);
  add(space, is_white_space(c));
  add(word, is_word(c, is_letter, is_mark, general));
  add(numeric, decide(is_number, x::numeric_exceptions, c));
  add(punctuation, decide(is_punctuation, x::punctuation_exceptions, c));
  add(control, decide(is_control, x::control_exceptions, c));
  add(nonspacing, decide(general == UTF8PROC_CATEGORY_MN, x::nonspacing_exceptions, c));
  add(combining, decide(is_mark, x::combining_exceptions, c));
  return static_cast<std::uint16_t>(bits);
}

/// Length of the valid sequence at `bytes`, or -n: n bytes that begin one and are broken off.
int sequence_length(const unsigned char* bytes, std::size_t size) {
  const unsigned char first = bytes[0];
  if (first < 0x80) return 1;
  int length = 0;
  unsigned char low = 0x80, high = 0xBF;  // of the second byte
  if (first >= 0xC2 && first <= 0xDF) {
    length = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    length = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    length = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return -1;
  }
  for (int i = 1; i < length; ++i) {
    if (static_cast<std::size_t>(i) >= size || bytes[i] < low || bytes[i] > high) return -i;
    low = 0x80;
    high = 0xBF;
  }
  return length;
}

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

Character decode_before(std::string_view text, std::size_t end) {
  std::size_t begin = end - 1;
  while (begin > 0 && !starts_character(text[begin])) --begin;
  return decode(text.data() + begin);
}

void append(std::string& text, char32_t code) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

std::size_t count_characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

bool is_one_character(std::string_view text) {
  return !text.empty() && static_cast<std::size_t>(decode(text.data()).length) == text.size();
}

std::size_t find_invalid(std::string_view bytes) {
  std::size_t at = 0;
  while (at < bytes.size()) {
    const int length = sequence_length(bytes_of(bytes) + at, bytes.size() - at);
    if (length < 0) return at;
    at += static_cast<std::size_t>(length);
  }
  return std::string_view::npos;
}

std::string to_valid(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  std::size_t at = 0;
  while (at < bytes.size()) {
    const int length = sequence_length(bytes_of(bytes) + at, bytes.size() - at);
    if (length < 0) {
      text += "\xEF\xBF\xBD";
    } else {
      text.append(bytes, at, static_cast<std::size_t>(length));
    }
    at += static_cast<std::size_t>(length < 0 ? -length : length);
  }
  return text;
}

ClassTable::ClassTable() {
  std::map<std::array<std::uint16_t, 256>, std::uint16_t> known;
  for (char32_t block = 0; block < 0x1100; ++block) {
    std::array<std::uint16_t, 256> content{};
    for (char32_t i = 0; i < 256; ++i) content[i] = compute_classes(block << 8 | i);
    const auto [where, is_new] = known.try_emplace(content, static_cast<std::uint16_t>(blocks_.size()));
    if (is_new) blocks_.push_back(content);
    block_of_[block] = where->second;
  }
}

const ClassTable& classes() {
  static const ClassTable table;
  return table;
}

int category(char32_t code) {
  const Range* exception = find(unicode_exceptions::category_exceptions, code);
  return exception == nullptr ? static_cast<int>(utf8proc_category(static_cast<utf8proc_int32_t>(code)))
                              : exception->value;
}

void append_lowercase(std::string& text, char32_t code) {
  if (code == 0x130) {  // the only one that becomes two: i and a dot above
    text += "i\xCC\x87";
    return;
  }
  const Range* exception = find(unicode_exceptions::lowercase_exceptions, code);
  const auto own = static_cast<utf8proc_int32_t>(code);
  append(text, static_cast<char32_t>(exception == nullptr ? utf8proc_tolower(own) : own + exception->value));
}

}  // namespace heddle::unicode
