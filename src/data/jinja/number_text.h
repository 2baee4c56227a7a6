#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// Numbers as Python's format() and % write them.
namespace heddle::jinja {

struct NumberStyle {
  char type = 'd';         // of floats: e, E, f, F, g, G, %, or r for repr's; of whole numbers: d, x, X, o, b
  int precision = -1;      // -1: none given
  bool alternate = false;  // "#"
  char grouping = '\0';    // "," or "_" between groups of digits
};

/// Digits without a sign.
std::string digits_of(std::uint64_t number, const NumberStyle& style);
std::string digits_of(double number, const NumberStyle& style);
/// Puts a separator between groups of three digits (four, of other bases) before the point; with zeros in front up to a
/// width of `least`.
std::string group_digits(std::string_view digits, char separator, std::size_t group, std::size_t least);

}  // namespace heddle::jinja
