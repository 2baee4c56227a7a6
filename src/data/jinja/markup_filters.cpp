// Filters of HTML and URLs.
#include <vector>

#include "data/jinja/arguments.h"
#include "data/jinja/builtins.h"
#include "data/jinja/characters.h"
#include "data/jinja/operators.h"
#include "data/jinja/print.h"
#include "data/jinja/sequences.h"

namespace heddle::jinja {
namespace {

std::string escape_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&#34;"; break;
      default: out += c;
    }
  }
  return out;
}

Value escape_filter(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return escape(runtime, input);
}

Value forceescape(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return runtime.text(escape_text(text_of(runtime, input)), true);
}

Value safe(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  return Value(text_of(runtime, input), true);
}

void append_quoted(std::string& out, std::string_view text, bool for_query) {
  constexpr std::string_view kHex = "0123456789ABCDEF", kPlain = "_.-~";
  for (const char c : text) {
    const bool is_alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const auto byte = static_cast<unsigned char>(c);
    if (is_alphanumeric || kPlain.find(c) != std::string_view::npos || (c == '/' && !for_query)) {
      out += c;
    } else if (c == ' ' && for_query) {
      out += '+';
    } else {
      out.append("%").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
    }
  }
}

Value urlencode(Runtime& runtime, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  std::string out;
  if (input.is_string() || !is_iterable(input)) {
    append_quoted(out, text_of(runtime, input), false);
    return runtime.text(out);
  }
  const Value pairs = input.is(Kind::dict) ? Value(input.dict, ViewOf::items) : input;
  Cursor cursor(runtime, pairs);
  for (Value pair; cursor.next(runtime, pair);) {
    if (!is_iterable(pair)) fail("cannot unpack non-iterable {} object", type_name(pair));
    const auto parts = unpack(runtime, pair);
    if (parts.size() != 2) fail("expected pairs of a key and a value, got {} values", parts.size());
    if (!out.empty()) out += '&';
    append_quoted(out, text_of(runtime, parts[0]), true);
    out += '=';
    append_quoted(out, text_of(runtime, parts[1]), true);
    check_printed(out);
  }
  return runtime.text(out);
}

Value xmlattr(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [autospace] = arguments.bind<1>({"autospace"}, 0);
  if (input.is(Kind::undefined)) fail_undefined(input);
  if (!input.is(Kind::dict)) fail("'{}' object has no attribute 'items'", type_name(input));
  std::string out;
  for (const auto& [key, value] : input.dict->entries) {
    if (value.is(Kind::none) || value.is(Kind::undefined)) continue;
    const std::string_view name = string_of(key, "an attribute name");
    if (name.find_first_of(" \t\n\r\f\v/>=") != std::string_view::npos) {
      fail("Invalid character in attribute name: {}", repr(key));
    }
    if (!out.empty()) out += ' ';
    out.append(escape(runtime, key).text()).append("=\"").append(escape(runtime, value).text()).append("\"");
  }
  if (!out.empty() && flag_or(autospace, true)) out.insert(0, " ");
  return runtime.text(out);
}

constexpr Named<FilterFunction> kFilters[] = {
    {"e", escape_filter}, {"escape", escape_filter}, {"forceescape", forceescape},
    {"safe", safe},       {"urlencode", urlencode},  {"xmlattr", xmlattr},
};

}  // namespace

Value escape(Runtime& runtime, const Value& value) {
  if (value.is_markup) return value;
  const std::string_view text = text_of(runtime, value);
  runtime.spend_bytes(text.size());
  if (text.find_first_of("&<>'\"") == std::string_view::npos) return Value(text, true);
  return runtime.text(escape_text(text), true);
}

Filters markup_filters() { return kFilters; }

}  // namespace heddle::jinja
