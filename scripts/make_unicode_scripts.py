#!/usr/bin/env python3
"""Writes src/data/tokenizer/unicode_scripts.cpp: which characters have one script for the pre-tokenizer UnicodeScripts of PyPI `tokenizers`.

The library is asked for every code point; the numbers of the scripts follow their first characters. Needs: pip install tokenizers.
"""
import sys

from tokenizers.pre_tokenizers import UnicodeScripts

LINE = 120
splitter = UnicodeScripts()


def are_apart(text):
    return len(splitter.pre_tokenize_str(text)) > 1


def ranges():
    """[first, last, script] of the code points that have one; others never part a text."""
    first_of, out, last = [], [], 0
    for code in range(0x110000):
        if 0xD800 <= code <= 0xDFFF:
            continue
        c = chr(code)
        if not are_apart("a" + c) and not are_apart("\u03b1" + c):
            continue
        known = ([last] if last else []) + list(range(1, len(first_of) + 1))
        script = next((i for i in known if not are_apart(first_of[i - 1] + c)), None)
        if script is None:
            first_of.append(c)
            script = len(first_of)
        if out and out[-1][1] == code - 1 and out[-1][2] == script:
            out[-1][1] = code
        else:
            out.append([code, code, script])
        last = script
    return out


def main():
    out = ["// Made by scripts/make_unicode_scripts.py; do not edit.", '#include "data/tokenizer/unicode_scripts.h"', "", "#include <algorithm>", "#include <iterator>", "",
           "namespace heddle::unicode {", "namespace {", "", "struct Range {", "  char32_t first, last;", "  int script;", "};", "", "// clang-format off", "constexpr Range ranges[] = {"]
    line = "   "
    for a, b, script in ranges():
        item = " {0x%x, 0x%x, %d}," % (a, b, script)
        if len(line) + len(item) > LINE:
            out.append(line)
            line = "   "
        line += item
    out += [line, "};", "// clang-format on", "", "}  // namespace", "", "int script(char32_t code) {",
            "  const auto* const after = std::upper_bound(std::begin(ranges), std::end(ranges), code,",
            "                                             [](char32_t c, const Range& range) { return c < range.first; });",
            "  if (after == std::begin(ranges) || code > (after - 1)->last) return 0;", "  return (after - 1)->script;", "}", "", "}  // namespace heddle::unicode"]
    with open(sys.argv[1], "w") as f:
        f.write("\n".join(out) + "\n")


main()
