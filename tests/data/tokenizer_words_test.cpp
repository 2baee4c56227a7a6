#include "data/tokenizer/words.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "data/tokenizer/pattern.h"

namespace heddle {
namespace {

/// Characters that the patterns tell apart, and any others.
std::string random_text(Random& random) {
  static const std::u32string telling =
      U"'stmdrveSTMDLl\u017FaZ\u00E9\u4F60 \n\r\t\v\u00A0\u3000\u202809\u00BD\u2168.,!({\u201C\u0301\U0001F44D";
  std::string text;
  for (std::uint64_t left = random.below(24); left > 0; --left) {
    const bool is_telling = random.below(8) != 0;
    char32_t code = is_telling ? telling[random.below(telling.size())]
                               : static_cast<char32_t>(random.below(random.below(2) == 0 ? 0x3000 : 0x110000));
    if (code >= 0xD800 && code <= 0xDFFF) code = U'x';
    unicode::append(text, code);
  }
  return text;
}

std::vector<std::string> scan(WordRule rule, std::string_view text) {
  const WordScanner scanner(rule);
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = scanner.end_of_word(text, begin);
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

std::vector<std::string> match(const Pattern& pattern, std::string_view text) {
  std::vector<std::string> words;
  for (const Stretch& stretch : pattern.find(text)) {
    EXPECT_TRUE(stretch.is_match || text.empty());
    if (stretch.begin != stretch.end) words.emplace_back(text.substr(stretch.begin, stretch.end - stretch.begin));
  }
  return words;
}

class Words : public testing::TestWithParam<WordRule> {};

TEST_P(Words, TheScannerCutsAsTheRegexEngineDoes) {
  const Pattern pattern = Pattern::regex(std::string(pattern_of(GetParam())), "test");
  Random random(7, 1);
  for (int i = 0; i < 20000; ++i) {
    const std::string text = random_text(random);
    ASSERT_EQ(scan(GetParam(), text), match(pattern, text)) << Json(text).dump();
  }
}

TEST_P(Words, APatternIsRecognisedByItsExactText) {
  EXPECT_EQ(find_word_rule(pattern_of(GetParam())), GetParam());
  EXPECT_EQ(find_word_rule(std::string(pattern_of(GetParam())) + "|x"), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(Rules, Words, testing::Values(WordRule::gpt2, WordRule::llama3, WordRule::qwen2));

// Examples of the patterns' meaning, worked out by hand.
TEST(WordScanner, Gpt2KeepsOneSpaceWithTheWord) {
  const std::vector<std::string> words = {"Hello", " world", "'s", "  ", " x", "12", "!?", "\n"};
  EXPECT_EQ(scan(WordRule::gpt2, "Hello world's   x12!?\n"), words);
}

TEST(WordScanner, Llama3CutsNumbersInThreesAndKeepsLineEndsWithSymbols) {
  const std::vector<std::string> words = {"abc", "123", "45", " (", "\tx", "'S", ";\n", " \n", "  ", " y"};
  EXPECT_EQ(scan(WordRule::llama3, "abc12345 (\tx'S;\n \n   y"), words);
}

TEST(WordScanner, Qwen2CutsEachDigit) {
  const std::vector<std::string> words = {"a", "1", "2", " b"};
  EXPECT_EQ(scan(WordRule::qwen2, "a12 b"), words);
}

}  // namespace
}  // namespace heddle
