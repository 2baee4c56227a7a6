#!/usr/bin/env python3
"""Writes src/data/tokenizer/unicode_exceptions.cpp: where the character classes of PyPI `tokenizers` differ from utf8proc's.

That library mixes tables of several Unicode versions (its regex engine's, Rust's, and two older crates'). Each is asked here for every
code point; a difference from utf8proc 2.8 (Unicode 15.0) becomes a range. Needs: pip install tokenizers; libutf8proc.so.2.
"""
import ctypes
import sys

from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
ASCII_PUNCTUATION = set(map(ord, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"))
DECOMPOSE, COMPAT = 1 << 4, 1 << 2

utf8proc = ctypes.CDLL("libutf8proc.so.2")
utf8proc.utf8proc_category_string.restype = ctypes.c_char_p
utf8proc.utf8proc_get_property.restype = ctypes.POINTER(ctypes.c_int16)


def ranges(values):
    """{code point: value} as [first, last, value]."""
    out = []
    for c in sorted(values):
        if out and out[-1][1] == c - 1 and out[-1][2] == values[c]:
            out[-1][1] = c
        else:
            out.append([c, c, values[c]])
    return out


def categories():
    text, found = "".join(map(chr, CODE_POINTS)), {}
    for name in CATEGORIES:
        kept = set(normalizers.Replace(Regex(r"\p{%s}" % name), "").normalize_str(text))
        found.update((c, name) for c in CODE_POINTS if chr(c) not in kept)
    return {c: found.get(c, "Cn") for c in CODE_POINTS}


def split_alone(pre_tokenizer):
    return {c for c in CODE_POINTS if len(pre_tokenizer.pre_tokenize_str("a" + chr(c) + "a")) == 3}


def removed(normalizer):
    return {c for c in CODE_POINTS if normalizer.normalize_str("a" + chr(c) + "a") == "aa"}


def differences(expected, found):
    return ranges({c: c in found for c in expected ^ found})


def decompose(c, options):
    buffer, boundary = (ctypes.c_int32 * 32)(), ctypes.c_int(0)
    count = utf8proc.utf8proc_decompose_char(c, buffer, 32, options, ctypes.byref(boundary))
    return "".join(chr(buffer[i]) for i in range(count))


def bert(**changes):
    options = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**options, **changes})


def is_reordered(c):
    """Whether the library knows the mark's combining class: it then swaps with a mark of another class."""
    nfd, combining_class = normalizers.NFD(), utf8proc.utf8proc_get_property(c)[1]
    if combining_class > 1:
        return nfd.normalize_str(chr(c) + "\u0334") == nfd.normalize_str("\u0334" + chr(c))
    return nfd.normalize_str("\u0323" + chr(c)) == nfd.normalize_str(chr(c) + "\u0323")


def main():
    category = categories()
    own = {c: utf8proc.utf8proc_category_string(c).decode() for c in CODE_POINTS}
    where = lambda test: {c for c in CODE_POINTS if test(category[c])}
    nfd, nfkd, lower = normalizers.NFD(), normalizers.NFKD(), normalizers.Lowercase()
    lowered = {c: lower.normalize_str(chr(c)) for c in CODE_POINTS}
    lowered = {c: s for c, s in lowered.items() if len(s) == 1 and ord(s) != utf8proc.utf8proc_tolower(c)}
    marks = [c for c in CODE_POINTS if utf8proc.utf8proc_get_property(c)[1]]
    tables = [
        ("category_exceptions", [[a, b, "UTF8PROC_CATEGORY_" + v.upper()] for a, b, v in ranges({c: category[c] for c in CODE_POINTS if category[c] != own[c]})]),
        ("numeric_exceptions", differences(where(lambda v: v[0] == "N"), split_alone(pre_tokenizers.Digits(individual_digits=True)))),
        ("punctuation_exceptions", differences(where(lambda v: v[0] == "P") | ASCII_PUNCTUATION, split_alone(pre_tokenizers.Punctuation()))),
        ("control_exceptions", differences(where(lambda v: v in ("Cc", "Cf", "Co")) - {9, 10, 13}, removed(bert(clean_text=True)) - {0xFFFD})),
        ("nonspacing_exceptions", differences(where(lambda v: v == "Mn"), removed(bert(strip_accents=True)))),
        ("combining_exceptions", differences(where(lambda v: v[0] == "M"), removed(normalizers.StripAccents()))),
        ("lowercase_exceptions", [[a, b, d] for a, b, d in ranges({c: ord(s) - c for c, s in lowered.items()})]),
        ("unordered_marks", [[a, b, 1] for a, b, _ in ranges({c: 0 for c in marks if not is_reordered(c)})]),
        ("not_decomposed", [[a, b, 1] for a, b, _ in ranges({c: 0 for c in CODE_POINTS if decompose(c, DECOMPOSE | COMPAT) != nfkd.normalize_str(chr(c)) or decompose(c, DECOMPOSE) != nfd.normalize_str(chr(c))})]),
    ]
    out = ['// Made by scripts/make_unicode_exceptions.py; do not edit.', '#include "data/tokenizer/unicode_exceptions.h"', "", "#include <utf8proc.h>", "", "namespace heddle::unicode_exceptions {", ""]
    for name, rows in tables:
        out += ["// clang-format off", "constexpr Range %s_rows[] = {" % name]
        line = "   "
        for a, b, v in rows:
            item = " {0x%x, 0x%x, %s}," % (a, b, int(v) if isinstance(v, bool) else v)
            if len(line) + len(item) > 120:
                out.append(line)
                line = "   "
            line += item
        out += [line, "};", "// clang-format on", "const std::span<const Range> %s = %s_rows;" % (name, name), ""]
    out.append("}  // namespace heddle::unicode_exceptions")
    with open(sys.argv[1], "w") as f:
        f.write("\n".join(out) + "\n")


main()
