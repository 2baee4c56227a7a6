#include "data/jinja/number_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "data/jinja/print.h"

namespace heddle::jinja {

std::string digits_of(std::uint64_t number, const NumberStyle& style) {
  const char letter = static_cast<char>(style.type | 0x20);
  const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
  std::array<char, 72> buffer{};
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number, base);
  std::string text(buffer.data(), end.ptr);
  if (style.type == 'X')
    std::transform(text.begin(), text.end(), text.begin(),
                   [](char c) { return static_cast<char>(c >= 'a' ? c - 32 : c); });
  return text;
}

namespace {

/// Without its type, format() of a float is repr(), or "g" with at least one digit behind the point.
std::string general(double number, int precision) {
  const NumberStyle style{'g', precision == 0 ? 1 : precision, false, '\0'};
  std::string text = digits_of(number, style);
  const std::size_t exponent = text.find('e');
  // "g" with a precision of p turns to exponents at 10^p, format() without a type at 10^(p-1).
  if (exponent == std::string::npos && text.find('.') == std::string::npos) {
    if (static_cast<int>(text.size()) >= style.precision && text != "0") {
      const NumberStyle scientific{'e', style.precision - 1, false, '\0'};
      text = digits_of(number, scientific);
      const std::size_t e = text.find('e');
      std::string mantissa = text.substr(0, e);
      if (mantissa.find('.') != std::string::npos) {
        while (mantissa.back() == '0') mantissa.pop_back();
        if (mantissa.back() == '.') mantissa.pop_back();
      }
      return mantissa + text.substr(e);
    }
    text += ".0";
  }
  return text;
}

}  // namespace

std::string digits_of(double number, const NumberStyle& style) {
  number = std::fabs(number);
  const bool is_upper = style.type >= 'A' && style.type <= 'Z';
  if (!std::isfinite(number)) {
    std::string text = std::isnan(number) ? "nan" : "inf";
    if (is_upper) text = std::isnan(number) ? "NAN" : "INF";
    return style.type == '%' ? text + "%" : text;
  }
  if (style.type == 'r') {
    if (style.precision >= 0) return general(number, style.precision);
    std::string text;
    append_number(text, number);
    return text;
  }
  const int precision = style.precision < 0 ? 6 : style.precision;
  if (precision > 10'000) fail("a precision of {} is too large", precision);
  const char type = style.type == '%' ? 'f' : style.type;
  const std::array<char, 6> format = {'%',
                                      style.alternate ? '#' : '.',
                                      style.alternate ? '.' : '*',
                                      style.alternate ? '*' : type,
                                      style.alternate ? type : '\0',
                                      '\0'};
  const double shown = style.type == '%' ? number * 100.0 : number;
  std::string text(static_cast<std::size_t>(precision) + 400, '\0');
  text.resize(static_cast<std::size_t>(std::snprintf(text.data(), text.size(), format.data(), precision, shown)));
  return style.type == '%' ? text + "%" : text;
}

std::string group_digits(std::string_view digits, char separator, std::size_t group, std::size_t least) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string reversed;
  for (std::size_t i = 0; i < whole || reversed.size() + (digits.size() - whole) < least; ++i) {
    if (i > 0 && i % group == 0) reversed += separator;
    reversed += i < whole ? digits[whole - 1 - i] : '0';
  }
  std::reverse(reversed.begin(), reversed.end());
  return reversed.append(digits.substr(whole));
}

}  // namespace heddle::jinja
