#include "data/tokenizer/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <string>

#include "base/random.h"
#include "data/tokenizer/normalization.h"

namespace heddle::unicode {
namespace {

// Examples of the Unicode Standard, section 3.9, tables 3-8 to 3-11: U+FFFD for each maximal subpart.
TEST(Utf8, BrokenSequencesBecomeReplacementCharacters) {
  const std::string mark = "\xEF\xBF\xBD";
  EXPECT_EQ(to_valid("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            mark + mark + mark + mark + mark + mark + mark + mark + "A");
  EXPECT_EQ(to_valid("\xED\xA0\x80\x41"), mark + mark + mark + "A");
  EXPECT_EQ(to_valid("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            mark + mark + mark + mark + mark + "A" + mark + mark + "B");
  EXPECT_EQ(to_valid("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), mark + mark + mark + mark + "A");
  EXPECT_EQ(to_valid("a\xC3\xA9\xF0\x9F\x91\x8D"), "a\xC3\xA9\xF0\x9F\x91\x8D");
  EXPECT_EQ(find_invalid("ab\xC3"), 2U);
}

TEST(Classes, FollowTheCategories) {
  const ClassTable& table = classes();
  EXPECT_TRUE(table.is(U'\u4F60', letter));
  EXPECT_TRUE(table.is(U'\u2168', number));
  EXPECT_TRUE(table.is(U'\u3000', space));
  EXPECT_FALSE(table.is(U'\u200B', space));
  EXPECT_TRUE(table.is(U'$', punctuation));
  EXPECT_TRUE(table.is(U'\u0301', word));
  EXPECT_TRUE(table.is(U'\u0301', nonspacing));
  EXPECT_TRUE(table.is(U'\u200D', control));
}

// Of the Unicode Character Database: DerivedGeneralCategory-16.0.0.txt counts 141,028 letters and 1,911 numbers.
TEST(Classes, CountAsUnicode16) {
  int letters = 0, numbers = 0;
  for (char32_t code = 0; code < 0x110000; ++code) {
    letters += classes().is(code, letter);
    numbers += classes().is(code, number);
  }
  EXPECT_EQ(letters, 141028);
  EXPECT_EQ(numbers, 1911);
}

std::string by_utf8proc(const std::string& text, Form form) {
  int options = UTF8PROC_STABLE | (form == Form::nfc || form == Form::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
  if (form == Form::nfkc || form == Form::nfkd) options |= UTF8PROC_COMPAT;
  utf8proc_uint8_t* out = nullptr;
  const auto size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &out, static_cast<utf8proc_option_t>(options));
  std::string result(reinterpret_cast<const char*>(out), static_cast<std::size_t>(size));
  std::free(out);
  return result;
}

TEST(Normalization, IsUtf8procsForCharactersThatBothKnow) {
  // Latin with marks, Greek, Hebrew, Devanagari, Hangul and its jamo, compatibility forms: all older than Unicode 9.
  static const std::u32string pool =
      U"aeo\u00E9\u00C5\u1E69\u0301\u0323\u0302\u0345\u0334\u0315\u03B1\u1F82\u05D0\u05BC\u0915\u093C\u1100\u1161\u11A8"
      U"\uAC00\uAC01\u212B\uFB01\u2168\uFF21\u0958\u0344\u1D15E\uF900 .";
  Random random(5, 0);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (std::uint64_t left = random.below(10); left > 0; --left) append(text, pool[random.below(pool.size())]);
    for (const Form form : {Form::nfc, Form::nfd, Form::nfkc, Form::nfkd}) {
      const std::string want = by_utf8proc(text, form);
      ASSERT_EQ(normalize(text, form), want);
      if (is_surely_normalized(text, form)) {
        ASSERT_EQ(want, text);
      }
    }
  }
}

TEST(Normalization, CharactersNewerThanTheLibraryStay) {
  EXPECT_EQ(normalize("\xE3\x8B\xBF", Form::nfkc), "\xE3\x8B\xBF");  // U+32FF, of Unicode 12.1
}

}  // namespace
}  // namespace heddle::unicode
