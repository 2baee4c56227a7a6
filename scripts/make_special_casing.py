#!/usr/bin/env python3
"""Writes src/data/jinja/special_casing.cpp from the tables of the Python that runs this.

Usage: make_special_casing.py > src/data/jinja/special_casing.cpp
"""
import unicodedata

HEAD = """// Made by scripts/make_special_casing.py from Unicode %s.
#include "data/jinja/special_casing.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace heddle::jinja {
namespace {

struct Casing {
  char32_t code;
  std::string_view text;
};

struct Range {
  char32_t first, last;
};

template <std::size_t N>
std::string_view find(const std::array<Casing, N>& table, char32_t code) {
  const auto at = std::lower_bound(table.begin(), table.end(), code, [](const Casing& c, char32_t x) { return c.code < x; });
  return at != table.end() && at->code == code ? at->text : std::string_view();
}

template <std::size_t N>
bool contains(const std::array<Range, N>& table, char32_t code) {
  const auto at = std::lower_bound(table.begin(), table.end(), code, [](const Range& r, char32_t x) { return r.last < x; });
  return at != table.end() && at->first <= code;
}
"""

TAIL = """
}  // namespace

std::string_view special_upper(char32_t code) { return code < 0x80 ? std::string_view() : find(kUpper, code); }
std::string_view special_title(char32_t code) { return code < 0x80 ? std::string_view() : find(kTitle, code); }
bool is_other_lowercase(char32_t code) { return contains(kOtherLowercase, code); }
bool is_numeral_letter(char32_t code) { return contains(kNumeralLetters, code); }

}  // namespace heddle::jinja"""


def characters():
    return (chr(c) for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF)


def literal(text):
    return '"' + "".join("\\u%04X" % ord(c) if ord(c) > 126 else c for c in text) + '"'


def print_casing(name, table):
    print("\nconstexpr std::array<Casing, %d> %s = {{" % (len(table), name))
    for code, text in table:
        print("    {0x%04X, %s}," % (code, literal(text)))
    print("}};")


def print_ranges(name, codes):
    ranges = []
    for code in codes:
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    print("\nconstexpr std::array<Range, %d> %s = {{" % (len(ranges), name))
    for first, last in ranges:
        print("    {0x%04X, 0x%04X}," % (first, last))
    print("}};")


def main():
    print(HEAD % unicodedata.unidata_version)
    print("// clang-format off")
    print_casing("kUpper", [(ord(c), c.upper()) for c in characters() if len(c.upper()) > 1])
    print_casing("kTitle", [(ord(c), c.title()) for c in characters() if len(c.title()) > 1])
    print_ranges("kOtherLowercase", [ord(c) for c in characters() if c.islower() and unicodedata.category(c) != "Ll"])
    print_ranges("kNumeralLetters", [ord(c) for c in characters() if c.isnumeric() and unicodedata.category(c)[0] != "N"])
    print("// clang-format on", end="")
    print(TAIL)


main()
