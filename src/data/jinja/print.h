#pragma once

#include <string>
#include <string_view>

#include "data/jinja/value.h"

namespace heddle::jinja {

/// Python's repr(): 'text', 1.0, True, [1, 'a'], {'key': None}.
void append_repr(std::string& out, const Value& value, int depth = 0);
std::string repr(const Value& value);
/// Python's repr() of a text: single quotes unless only these are in it; what does not print is escaped.
void append_repr(std::string& out, std::string_view text);
/// The shortest digits that read back to the same number, as Python sets them: 1.0, 1e-07, 1e+16, inf, nan.
void append_number(std::string& out, double number);

/// Python's str(): a text as it is, anything else as repr(); undefined values are empty.
void append_text(std::string& out, const Value& value);
/// The same as a view, in the value itself or in the arena.
std::string_view text_of(Runtime& runtime, const Value& value);

struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  bool has_lines = false;   // one element a line
  std::string_view indent;  // of one level, with has_lines
  std::string_view item_separator = ", ", key_separator = ": ";
};

/// Python's json.dumps().
void append_json(Runtime& runtime, std::string& out, const Value& value, const JsonStyle& style);

/// The longest text that printing makes.
inline constexpr std::size_t kMaxPrinted = std::size_t{64} << 20;
inline void check_printed(const std::string& out) {
  if (out.size() > kMaxPrinted) fail("a printed value is longer than {} bytes", kMaxPrinted);
}

}  // namespace heddle::jinja
