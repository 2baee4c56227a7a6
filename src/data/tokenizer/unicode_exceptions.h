#pragma once

#include <cstdint>
#include <span>

/// Where the character classes of Hugging Face's `tokenizers` differ from utf8proc's, since it mixes tables of several
/// Unicode versions. The .cpp is made by scripts/make_unicode_exceptions.py.
namespace heddle::unicode_exceptions {

struct Range {
  std::uint32_t first, last;
  std::int32_t value;
};

extern const std::span<const Range> category_exceptions;     ///< value: UTF8PROC_CATEGORY_*, as its regex engine has it
extern const std::span<const Range> numeric_exceptions;      ///< value: is numeric, though its category says otherwise
extern const std::span<const Range> punctuation_exceptions;  ///< the same for the rest
extern const std::span<const Range> control_exceptions;
extern const std::span<const Range> nonspacing_exceptions;
extern const std::span<const Range> combining_exceptions;
extern const std::span<const Range> lowercase_exceptions;  ///< value: what to add
extern const std::span<const Range> unordered_marks;       ///< normalizers take their combining class as 0
extern const std::span<const Range> not_decomposed;        ///< normalizers leave them as they are

}  // namespace heddle::unicode_exceptions
