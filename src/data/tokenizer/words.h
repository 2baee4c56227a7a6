#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "data/tokenizer/unicode.h"

namespace heddle {

/// Split patterns that are scanned by hand, since a regex engine would take most of the time. GPT-2's is built into
/// ByteLevel; Llama 3's (numbers in threes) and Qwen 2's (each digit alone) are recognised by their exact text.
enum class WordRule { gpt2, llama3, qwen2 };

std::string_view pattern_of(WordRule rule);
std::optional<WordRule> find_word_rule(std::string_view pattern);

/// Cuts text into the matches of a rule's pattern, which always cover it.
class WordScanner {
 public:
  explicit WordScanner(WordRule rule);

  /// End of the word that begins at `begin` < text.size(). The text must be valid UTF-8.
  std::size_t end_of_word(std::string_view text, std::size_t begin) const {
    return rule_ == WordRule::gpt2 ? end_of_gpt2_word(text, begin) : end_of_llama3_word(text, begin);
  }

 private:
  enum Kind : unsigned char { letter, number, space, other };
  struct Next {
    std::size_t end;  // after the character
    Kind kind;
  };

  std::size_t end_of_gpt2_word(std::string_view text, std::size_t begin) const;
  std::size_t end_of_llama3_word(std::string_view text, std::size_t begin) const;
  Kind kind_of(char32_t code) const;
  Next at(std::string_view text, std::size_t position) const;
  std::size_t skip(std::string_view text, std::size_t position, Kind kind) const;
  std::size_t end_of_spaces(std::string_view text, std::size_t begin, std::size_t after_first) const;

  WordRule rule_;
  int longest_number_;
  const unicode::ClassTable& table_;
  std::array<Kind, 128> ascii_{};
};

}  // namespace heddle
