// abs, int, float, round, filesizeformat.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "data/jinja/arguments.h"
#include "data/jinja/builtins.h"
#include "data/jinja/characters.h"
#include "data/jinja/number_text.h"
#include "data/jinja/operators.h"
#include "data/jinja/print.h"

namespace heddle::jinja {
namespace {

/// A number as Python reads it from a text: white space around it, "_" between digits. None where it has other forms.
std::optional<std::string> plain_digits(std::string_view text) {
  text = strip(text);
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto is_alphanumeric = [](char c) {
      return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    };
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || i + 1 == text.size() || !is_alphanumeric(text[i - 1]) || !is_alphanumeric(text[i + 1])) {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<std::int64_t> parse_integer(std::string_view text, std::int64_t base) {
  auto digits = plain_digits(text);
  if (!digits) return std::nullopt;
  std::string_view rest = *digits;
  const bool is_negative = rest.starts_with('-');
  if (is_negative || rest.starts_with('+')) rest.remove_prefix(1);
  const char prefix = rest.size() > 2 && rest[0] == '0' ? static_cast<char>(rest[1] | 0x20) : '\0';
  const std::int64_t prefixed = prefix == 'x' ? 16 : prefix == 'o' ? 8 : prefix == 'b' ? 2 : 0;
  if (prefixed != 0 && (base == 0 || base == prefixed)) {
    rest.remove_prefix(2);
    base = prefixed;
  }
  if (base == 0) {
    base = 10;
    if (rest.size() > 1 && rest[0] == '0' && rest.find_first_not_of('0') != std::string_view::npos) return std::nullopt;
  }
  if (base < 2 || base > 36) fail("int() base must be >= 2 and <= 36, or 0");
  std::uint64_t number = 0;
  const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), number, static_cast<int>(base));
  if (rest.empty() || result.ptr != rest.data() + rest.size()) return std::nullopt;
  const auto most = static_cast<std::uint64_t>(INT64_MAX) + (is_negative ? 1 : 0);
  if (result.ec != std::errc() || number > most) fail("the number {} is beyond 64 bits", *digits);
  return static_cast<std::int64_t>(is_negative ? 0 - number : number);
}

std::optional<double> parse_number(std::string_view text) {
  const auto digits = plain_digits(text);
  if (!digits || digits->empty()) return std::nullopt;
  std::string_view rest = *digits;
  const bool is_negative = rest.starts_with('-');
  if (is_negative || rest.starts_with('+')) rest.remove_prefix(1);
  const std::string word = lower(rest);
  double number = 0.0;
  if (word == "nan") {
    number = std::nan("");
  } else if (word == "inf" || word == "infinity") {
    number = HUGE_VAL;
  } else {
    if (rest.empty() || !((rest[0] >= '0' && rest[0] <= '9') || rest[0] == '.')) return std::nullopt;
    const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (result.ptr != rest.data() + rest.size()) return std::nullopt;
    if (result.ec == std::errc::result_out_of_range) number = std::strtod(std::string(rest).c_str(), nullptr);
    if (result.ec == std::errc::invalid_argument) return std::nullopt;
  }
  return is_negative ? -number : number;
}

std::optional<double> to_number(const Value& value) {
  if (value.is(Kind::undefined)) fail_undefined(value);
  if (value.is_number()) return value.as_floating();
  if (value.is_string()) return parse_number(value.text());
  return std::nullopt;
}

std::int64_t whole(double number) {
  if (!(std::fabs(number) < 0x1p63)) fail("the number {} is beyond 64 bits", number);
  return static_cast<std::int64_t>(number);
}

Value int_filter(Runtime&, const Value& input, Arguments& arguments) {
  const auto [otherwise, base] = arguments.bind<2>({"default", "base"}, 0);
  if (input.is_integral()) return Value(input.as_integer());
  if (input.is(Kind::floating)) {
    if (std::isinf(input.floating)) fail("cannot convert float infinity to integer");
    if (!std::isnan(input.floating)) return Value(whole(input.floating));
  }
  if (input.is_string()) {
    if (const auto number = parse_integer(input.text(), base.is(Kind::missing) ? 10 : integer_of(base)))
      return Value(*number);
  }
  const auto number = to_number(input);
  if (number && std::isfinite(*number)) return Value(whole(*number));
  return otherwise.is(Kind::missing) ? Value(std::int64_t{0}) : otherwise;
}

Value float_filter(Runtime&, const Value& input, Arguments& arguments) {
  const auto [otherwise] = arguments.bind<1>({"default"}, 0);
  if (const auto number = to_number(input)) return Value(*number);
  return otherwise.is(Kind::missing) ? Value(0.0) : otherwise;
}

Value abs_filter(Runtime&, const Value& input, Arguments& arguments) {
  arguments.expect_none();
  if (input.is(Kind::undefined)) fail_undefined(input);
  if (input.is(Kind::floating)) return Value(std::fabs(input.floating));
  if (!input.is_integral()) fail("bad operand type for abs(): '{}'", type_name(input));
  return input.as_integer() < 0 ? negate(input) : Value(input.as_integer());
}

/// round() of Python: exact, halves to even.
double round_to(double number, std::int64_t precision) {
  if (!std::isfinite(number) || precision > 323) return number;
  if (precision < -308) return std::copysign(0.0, number);
  if (precision >= 0) {
    std::array<char, 700> text{};
    std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(precision), number);
    return std::strtod(text.data(), nullptr);
  }
  // Tens and more: the digits in front, of the exact number.
  std::array<char, 700> text{};
  std::snprintf(text.data(), text.size(), "%.0f", std::fabs(number));
  const auto cut = static_cast<int>(-precision);
  const int digits = static_cast<int>(std::string_view(text.data()).size());
  if (cut > digits) return std::copysign(0.0, number);
  std::snprintf(text.data(), text.size(), "%.*e", std::max(digits - cut - 1, 0), number);
  if (cut == digits)
    return std::copysign(std::fabs(number) > 0.5 * std::pow(10.0, cut) ? std::pow(10.0, cut) : 0.0, number);
  return std::strtod(text.data(), nullptr);
}

std::int64_t round_integer(std::int64_t number, std::int64_t precision) {
  if (precision >= 0) return number;
  if (precision < -18) return 0;
  std::int64_t unit = 1;
  for (std::int64_t i = precision; i < 0; ++i) unit *= 10;
  const std::int64_t remainder = number % unit, half = unit / 2, truncated = number - remainder;
  const std::int64_t distance = std::abs(remainder);
  const bool goes_away = distance > half || (distance == half && (number / unit) % 2 != 0);
  std::int64_t result = truncated;
  if (goes_away && __builtin_add_overflow(truncated, number < 0 ? -unit : unit, &result))
    fail("a whole number goes beyond 64 bits");
  return result;
}

Value round_filter(Runtime&, const Value& input, Arguments& arguments) {
  const auto [precision, method] = arguments.bind<2>({"precision", "method"}, 0);
  const std::string_view how = method.is(Kind::missing) ? "common" : method.is_string() ? method.text() : "";
  if (how != "common" && how != "ceil" && how != "floor") fail("method must be common, ceil or floor");
  const std::int64_t digits = integer_or(precision, 0);
  if (input.is(Kind::undefined)) fail_undefined(input);
  if (!input.is_number()) fail("type {} doesn't define __round__ method", type_name(input));
  if (how == "common") {
    if (!input.is_integral()) return Value(round_to(input.floating, digits));
    return Value(round_integer(input.as_integer(), digits));
  }
  const double scale = std::pow(10.0, static_cast<double>(digits)), scaled = input.as_floating() * scale;
  if (std::isnan(scaled)) fail("cannot convert float NaN to integer");
  if (std::isinf(scaled)) fail("cannot convert float infinity to integer");
  return Value((how == "ceil" ? std::ceil(scaled) + 0.0 : std::floor(scaled)) / scale);
}

Value filesizeformat(Runtime& runtime, const Value& input, Arguments& arguments) {
  const auto [binary] = arguments.bind<1>({"binary"}, 0);
  const auto number = to_number(input);
  if (!number) fail("could not convert to float: {}", repr(input));
  const bool is_binary = flag_or(binary, false);
  const double base = is_binary ? 1024.0 : 1000.0;
  if (*number == 1.0) return Value(std::string_view("1 Byte"));
  if (std::isnan(*number)) fail("cannot convert float NaN to integer");
  if (*number < base) return runtime.text(fmt::format("{} Bytes", whole(*number)));
  constexpr std::string_view kLetters = "KMGTPEZY";
  double unit = base;
  for (std::size_t i = 0;; ++i) {
    unit *= base;
    if (*number >= unit && i + 1 < kLetters.size()) continue;
    const char letter = is_binary || i > 0 ? kLetters[i] : 'k';
    const std::string digits = digits_of(base * *number / unit, {'f', 1, false, '\0'});
    return runtime.text(fmt::format("{} {}{}", digits, letter, is_binary ? "iB" : "B"));
  }
}

constexpr Named<FilterFunction> kFilters[] = {
    {"abs", abs_filter},
    {"int", int_filter},
    {"float", float_filter},
    {"round", round_filter},
    {"filesizeformat", filesizeformat},
};

}  // namespace

Filters number_filters() { return kFilters; }

}  // namespace heddle::jinja
