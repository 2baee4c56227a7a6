// str.format() and format(), with Python's format specification.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "data/jinja/arguments.h"
#include "data/jinja/characters.h"
#include "data/jinja/number_text.h"
#include "data/jinja/operators.h"
#include "data/jinja/print.h"
#include "data/jinja/sequences.h"

namespace heddle::jinja {
namespace {

constexpr int kMaxWidth = 1'000'000;

/// [[fill]align][sign][z][#][0][width][grouping][.precision][type]
struct Spec {
  std::string_view fill = " ";
  char align = '\0', sign = '-', grouping = '\0', type = '\0';
  bool alternate = false;
  int width = 0, precision = -1;
};

int read_number(std::string_view& text) {
  int number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  if (result.ec == std::errc::result_out_of_range || number > kMaxWidth)
    fail("Too many decimal digits in format string");
  text.remove_prefix(static_cast<std::size_t>(result.ptr - text.data()));
  return number;
}

bool starts_with_digit(std::string_view text) { return !text.empty() && text[0] >= '0' && text[0] <= '9'; }

Spec parse_spec(std::string_view text) {
  Spec spec;
  const std::string_view whole = text;
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '=' || c == '^'; };
  const auto take = [&text](std::string_view any, char& into) {
    if (text.empty() || any.find(text[0]) == std::string_view::npos) return false;
    into = text[0];
    text.remove_prefix(1);
    return true;
  };
  bool has_fill = false;
  if (!text.empty()) {
    const auto length = static_cast<std::size_t>(unicode::decode(text.data()).length);
    if (length < text.size() && is_align(text[length])) {
      has_fill = true;
      spec.fill = text.substr(0, length);
      spec.align = text[length];
      text.remove_prefix(length + 1);
    } else {
      take("<>=^", spec.align);
    }
  }
  take("+- ", spec.sign);
  char flag = '\0';
  spec.alternate = take("#", flag);
  if (!has_fill && text.starts_with('0')) {
    spec.fill = "0";
    if (spec.align == '\0') spec.align = '=';
    text.remove_prefix(1);
  }
  if (starts_with_digit(text)) spec.width = read_number(text);
  take(",_", spec.grouping);
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (!starts_with_digit(text)) fail("Format specifier missing precision");
    spec.precision = read_number(text);
  }
  if (text.size() > 1) fail("Invalid format specifier '{}'", whole);
  if (!text.empty()) spec.type = text[0];
  return spec;
}

void append_aligned(std::string& out, std::string_view sign, std::string_view body, const Spec& spec, char standard) {
  const auto size = static_cast<int>(length_of(sign) + length_of(body));
  const int blanks = std::max(spec.width - size, 0);
  const char align = spec.align == '\0' ? standard : spec.align;
  const int before = align == '>' ? blanks : align == '^' ? blanks / 2 : 0;
  const int inside = align == '=' ? blanks : 0;
  const auto fill = [&](int times) {
    for (int i = 0; i < times; ++i) out += spec.fill;
  };
  fill(before);
  out += sign;
  fill(inside);
  out += body;
  fill(blanks - before - inside);
}

std::string_view sign_of(bool is_negative, char style) {
  if (is_negative) return "-";
  return style == '+' ? "+" : style == ' ' ? " " : "";
}

void append_number_body(std::string& out, std::string_view sign, std::string_view digits, const Spec& spec,
                        std::size_t group) {
  if (spec.grouping == '\0') return append_aligned(out, sign, digits, spec, '>');
  const bool pads_with_zeros = spec.fill == "0" && spec.align == '=';
  const int least = pads_with_zeros ? spec.width - static_cast<int>(sign.size()) : 0;
  append_aligned(out, sign, group_digits(digits, spec.grouping, group, static_cast<std::size_t>(std::max(least, 0))),
                 spec, '>');
}

void append_floating(std::string& out, double number, const Spec& spec) {
  constexpr std::string_view kTypes = "eEfFgG%n";
  if (spec.type != '\0' && kTypes.find(spec.type) == std::string_view::npos) {
    fail("Unknown format code '{}' for object of type 'float'", spec.type);
  }
  const char type = spec.type == '\0' ? 'r' : spec.type == 'n' ? 'g' : spec.type;
  const NumberStyle style{type, spec.precision, spec.alternate, '\0'};
  append_number_body(out, sign_of(std::signbit(number) && !std::isnan(number), spec.sign), digits_of(number, style),
                     spec, 3);
}

void append_integer(std::string& out, std::int64_t number, const Spec& spec) {
  constexpr std::string_view kTypes = "dxXobnc", kFloats = "eEfFgG%";
  if (spec.type != '\0' && kFloats.find(spec.type) != std::string_view::npos) {
    return append_floating(out, static_cast<double>(number), spec);
  }
  if (spec.type != '\0' && kTypes.find(spec.type) == std::string_view::npos) {
    fail("Unknown format code '{}' for object of type 'int'", spec.type);
  }
  if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    if (number < 0 || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000)) fail("%c arg not in range(0x110000)");
    std::string text;
    unicode::append(text, static_cast<char32_t>(number));
    return append_aligned(out, "", text, spec, '<');
  }
  const NumberStyle style{spec.type == '\0' || spec.type == 'n' ? 'd' : spec.type, -1, false, '\0'};
  const auto magnitude = number < 0 ? 0 - static_cast<std::uint64_t>(number) : static_cast<std::uint64_t>(number);
  std::string sign(sign_of(number < 0, spec.sign));
  if (spec.alternate && style.type != 'd') sign.append("0").append(1, style.type);
  append_number_body(out, sign, digits_of(magnitude, style), spec, style.type == 'd' ? 3 : 4);
}

void append_string(std::string& out, std::string_view text, const Spec& spec) {
  if (spec.type != '\0' && spec.type != 's') fail("Unknown format code '{}' for object of type 'str'", spec.type);
  if (spec.sign != '-') fail("Sign not allowed in string format specifier");
  if (spec.align == '=' && spec.fill != "0") fail("'=' alignment not allowed in string format specifier");
  if (spec.precision >= 0) text = text.substr(0, offset_of(text, static_cast<std::size_t>(spec.precision)));
  Spec aligned = spec;
  if (aligned.align == '=') aligned.align = '<';
  append_aligned(out, "", text, aligned, '<');
}

/// A replacement field and what it refers to.
class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments, bool is_markup)
      : runtime_(runtime), arguments_(arguments), is_markup_(is_markup) {}

  std::string format(std::string_view text, int depth) {
    if (depth > 2) fail("Max string recursion exceeded");
    std::string out;
    std::size_t at = 0;
    while (at < text.size()) {
      const std::size_t brace = std::min(text.find_first_of("{}", at), text.size());
      out.append(text, at, brace - at);
      if (brace == text.size()) break;
      if (brace + 1 < text.size() && text[brace + 1] == text[brace]) {
        out += text[brace];
        at = brace + 2;
        continue;
      }
      if (text[brace] == '}') fail("Single '}}' encountered in format string");
      const std::size_t end = field_end(text, brace + 1);
      append_field(out, text.substr(brace + 1, end - brace - 1), depth);
      at = end + 1;
      check_printed(out);
    }
    return out;
  }

 private:
  static std::size_t field_end(std::string_view text, std::size_t at) {
    int open = 1;
    bool in_index = false;
    for (; at < text.size(); ++at) {
      if (text[at] == '[' && open == 1) in_index = true;
      if (text[at] == ']') in_index = false;
      if (in_index) continue;
      if (text[at] == '{') ++open;
      if (text[at] == '}' && --open == 0) return at;
    }
    fail("{}", open == 1 ? "Single '{' encountered in format string" : "expected '}' before end of string");
  }

  void append_field(std::string& out, std::string_view field, int depth) {
    std::size_t name_end = 0;
    bool in_index = false;
    while (name_end < field.size() && (in_index || (field[name_end] != ':' && field[name_end] != '!'))) {
      if (field[name_end] == '[') in_index = true;
      if (field[name_end] == ']') in_index = false;
      ++name_end;
    }
    const std::string_view name = field.substr(0, name_end);
    std::string_view rest = field.substr(name_end);
    Value value = look_up(name);
    if (rest.starts_with('!')) {
      if (rest.size() < 2) fail("end of string while looking for conversion specifier");
      value = convert(value, rest[1]);
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') fail("expected ':' after conversion specifier");
    }
    const std::string spec = rest.empty() ? std::string() : format(rest.substr(1), depth + 1);
    if (!is_markup_) return append_formatted(runtime_, out, value, spec);
    std::string formatted;
    append_formatted(runtime_, formatted, value, spec);
    out += value.is_markup ? formatted : std::string(escape(runtime_, Value(std::string_view(formatted))).text());
  }

  Value convert(const Value& value, char kind) {
    if (kind == 's') return Value(text_of(runtime_, value));
    if (kind == 'r' || kind == 'a') return runtime_.text(repr(value));
    fail("Unknown conversion specifier '{}'", kind);
  }

  static std::optional<std::int64_t> as_index(std::string_view text) {
    std::int64_t index = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), index);
    if (text.empty() || text[0] == '-' || result.ec != std::errc() || result.ptr != text.data() + text.size())
      return std::nullopt;
    return index;
  }

  Value look_up(std::string_view name) {
    const std::size_t first_end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, first_end));
    std::string_view rest = name.substr(first_end);
    while (!rest.empty()) {
      if (rest[0] == '.') {
        const std::size_t end = std::min(rest.find_first_of(".[", 1), rest.size());
        if (end == 1) fail("Empty attribute in format string");
        value = attribute_of(runtime_, value, runtime_.arena.copy(rest.substr(1, end - 1)));
        rest.remove_prefix(end);
      } else if (rest[0] == '[') {
        const std::size_t end = rest.find(']');
        if (end == std::string_view::npos) fail("Missing ']' in format string");
        const std::string_view index = rest.substr(1, end - 1);
        if (index.empty()) fail("Empty attribute in format string");
        const auto number = as_index(index);
        value = item_of(runtime_, value, number ? Value(*number) : runtime_.text(index));
        rest.remove_prefix(end + 1);
      } else {
        fail("Only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return value;
  }

  Value argument(std::string_view name) {
    if (name.empty()) {
      if (is_manual_) fail("cannot switch from manual field specification to automatic field numbering");
      is_automatic_ = true;
      return positional(next_++);
    }
    if (const auto index = as_index(name)) {
      if (is_automatic_) fail("cannot switch from automatic field numbering to manual field specification");
      is_manual_ = true;
      return positional(static_cast<std::size_t>(*index));
    }
    const Value* value = arguments_.keyword(name);
    if (value == nullptr) fail("{}", repr(Value(name)));  // Python's KeyError
    return *value;
  }

  Value positional(std::size_t index) {
    if (index >= arguments_.positional.size())
      fail("Replacement index {} out of range for positional args tuple", index);
    return arguments_.positional[index];
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  bool is_markup_;
  std::size_t next_ = 0;
  bool is_automatic_ = false, is_manual_ = false;
};

}  // namespace

void append_formatted(Runtime& runtime, std::string& out, const Value& value, std::string_view spec_text) {
  if (value.is(Kind::boolean) && spec_text.empty()) return append_text(out, value);
  if (value.is_number()) {
    const Spec spec = parse_spec(spec_text);
    if (value.is(Kind::floating)) return append_floating(out, value.floating, spec);
    return append_integer(out, value.as_integer(), spec);
  }
  if (value.is_string()) return append_string(out, value.text(), parse_spec(spec_text));
  if (!spec_text.empty()) fail("unsupported format string passed to {}.__format__", type_name(value));
  out += text_of(runtime, value);
}

Value format_braces(Runtime& runtime, const Value& format, const Arguments& arguments) {
  runtime.spend_bytes(format.size);
  BraceFormatter formatter(runtime, arguments, format.is_markup);
  return runtime.text(formatter.format(format.text(), 1), format.is_markup);
}

}  // namespace heddle::jinja
