#include "data/jinja/print.h"

#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

#include "data/jinja/characters.h"
#include "data/jinja/runtime.h"

namespace heddle::jinja {

void append_number(std::string& out, double number) {
  if (std::isnan(number)) {
    out += "nan";
    return;
  }
  if (std::isinf(number)) {
    out += number > 0 ? "inf" : "-inf";
    return;
  }
  std::array<char, 32> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, std::chars_format::scientific);
  std::string_view text(buffer.data(), static_cast<std::size_t>(end.ptr - buffer.data()));
  if (text.front() == '-') {
    out += '-';
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out.append(".").append(digits, 1);
    fmt::format_to(std::back_inserter(out), "e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    const int zeros = -exponent - 1;
    out.append("0.").append(static_cast<std::size_t>(zeros), '0').append(digits);
  } else if (count <= exponent + 1) {
    const int zeros = exponent + 1 - count;
    out.append(digits).append(static_cast<std::size_t>(zeros), '0').append(".0");
  } else {
    const auto whole = static_cast<std::size_t>(exponent) + 1;
    out.append(digits, 0, whole).append(".").append(digits, whole);
  }
}

void append_repr(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, length] = unicode::decode(text.data() + at);
    const auto append_escape = [&out, c = static_cast<std::uint32_t>(code)] {
      if (c < 0x100) {
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", c);
      } else if (c < 0x10000) {
        fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
      } else {
        fmt::format_to(std::back_inserter(out), "\\U{:08x}", c);
      }
    };
    if (code == static_cast<unsigned char>(quote) || code == '\\') {
      out += '\\';
      out += static_cast<char>(code);
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\r') {
      out += "\\r";
    } else if (code == '\t') {
      out += "\\t";
    } else if (is_printable(code)) {
      out.append(text, at, static_cast<std::size_t>(length));
    } else {
      append_escape();
    }
    at += static_cast<std::size_t>(length);
  }
  out += quote;
}

namespace {

void append_items(std::string& out, std::span<const Value> items, int depth) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, items[i], depth + 1);
  }
}

void append_view(std::string& out, const Value& view, int depth) {
  out.append(type_name(view)).append("([");
  bool is_first = true;
  for (const auto& [key, value] : view.dict->entries) {
    if (!is_first) out += ", ";
    is_first = false;
    if (view.view == ViewOf::items) out += '(';
    if (view.view != ViewOf::values) append_repr(out, key, depth + 1);
    if (view.view == ViewOf::items) out += ", ";
    if (view.view != ViewOf::keys) append_repr(out, value, depth + 1);
    if (view.view == ViewOf::items) out += ')';
  }
  out += "])";
}

void append_dict(std::string& out, const Dict& dict, int depth) {
  out += '{';
  bool is_first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!is_first) out += ", ";
    is_first = false;
    append_repr(out, key, depth + 1);
    out += ": ";
    append_repr(out, value, depth + 1);
  }
  out += '}';
}

}  // namespace

void append_repr(std::string& out, const Value& value, int depth) {
  check_nesting(depth);
  check_printed(out);
  switch (value.kind) {
    case Kind::missing:
    case Kind::undefined: out += "Undefined"; break;
    case Kind::none: out += "None"; break;
    case Kind::boolean: out += value.boolean ? "True" : "False"; break;
    case Kind::integer: fmt::format_to(std::back_inserter(out), "{}", value.integer); break;
    case Kind::floating: append_number(out, value.floating); break;
    case Kind::string:
      if (value.is_markup) out += "Markup(";
      append_repr(out, value.text());
      if (value.is_markup) out += ')';
      break;
    case Kind::list:
      out += '[';
      append_items(out, value.items(), depth);
      out += ']';
      break;
    case Kind::tuple:
      out += '(';
      append_items(out, value.items(), depth);
      out += value.size == 1 ? ",)" : ")";
      break;
    case Kind::dict: append_dict(out, *value.dict, depth); break;
    case Kind::range:
      fmt::format_to(std::back_inserter(out), "range({}, {}", value.range->start, value.range->stop);
      if (value.range->step != 1) fmt::format_to(std::back_inserter(out), ", {}", value.range->step);
      out += ')';
      break;
    case Kind::view: append_view(out, value, depth); break;
    case Kind::iterator: out.append("<").append(type_name(value)).append(" object>"); break;
    case Kind::object: value.object->append_repr(out, depth); break;
  }
}

std::string repr(const Value& value) {
  std::string out;
  append_repr(out, value);
  return out;
}

void append_text(std::string& out, const Value& value) {
  if (value.is_string()) {
    out += value.text();
  } else if (!value.is(Kind::undefined)) {
    append_repr(out, value);
  }
}

std::string_view text_of(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.text();
  std::string out;
  append_text(out, value);
  return runtime.arena.copy(out);
}

}  // namespace heddle::jinja
