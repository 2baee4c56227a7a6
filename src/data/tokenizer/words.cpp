#include "data/tokenizer/words.h"

namespace heddle {
namespace {

constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view llama3_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view qwen2_pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Bytes of 's, 't, 're, 've, 'm, 'll or 'd at the apostrophe at `begin`; 0 if none stands there. Without regard to
/// case, U+017F (long s) is an s too.
std::size_t contraction_length(std::string_view text, std::size_t begin, bool any_case) {
  const auto at = [&](std::size_t i) -> char {
    if (begin + i >= text.size()) return '\0';
    const char c = text[begin + i];
    return any_case && c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  switch (at(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return 2;
    case 'r':
    case 'v': return at(2) == 'e' ? 3 : 0;
    case 'l': return at(2) == 'l' ? 3 : 0;
    case '\xC5': return any_case && at(2) == '\xBF' ? 3 : 0;
    default: return 0;
  }
}

bool is_newline(char c) { return c == '\n' || c == '\r'; }

}  // namespace

std::string_view pattern_of(WordRule rule) {
  switch (rule) {
    case WordRule::gpt2: return gpt2_pattern;
    case WordRule::llama3: return llama3_pattern;
    case WordRule::qwen2: return qwen2_pattern;
  }
  return {};
}

std::optional<WordRule> find_word_rule(std::string_view pattern) {
  for (const WordRule rule : {WordRule::gpt2, WordRule::llama3, WordRule::qwen2}) {
    if (pattern == pattern_of(rule)) return rule;
  }
  return std::nullopt;
}

WordScanner::WordScanner(WordRule rule)
    : rule_(rule), longest_number_(rule == WordRule::llama3 ? 3 : 1), table_(unicode::classes()) {
  for (char32_t code = 0; code < 128; ++code) ascii_[code] = kind_of(code);
}

WordScanner::Kind WordScanner::kind_of(char32_t code) const {
  const int bits = table_.of(code);
  if ((bits & unicode::letter) != 0) return letter;
  if ((bits & unicode::number) != 0) return number;
  return (bits & unicode::space) != 0 ? space : other;
}

inline WordScanner::Next WordScanner::at(std::string_view text, std::size_t position) const {
  const auto byte = static_cast<unsigned char>(text[position]);
  if (byte < 128) return {position + 1, ascii_[byte]};
  const unicode::Character c = unicode::decode(text.data() + position);
  return {position + static_cast<std::size_t>(c.length), kind_of(c.code)};
}

inline std::size_t WordScanner::skip(std::string_view text, std::size_t position, Kind kind) const {
  while (position < text.size()) {
    const Next next = at(text, position);
    if (next.kind != kind) break;
    position = next.end;
  }
  return position;
}

/// `\s+(?!\S)|\s+`: all of the white space, but for its last character when something follows (unless it is the
/// only one).
std::size_t WordScanner::end_of_spaces(std::string_view text, std::size_t begin, std::size_t after_first) const {
  const std::size_t end = skip(text, after_first, space);
  if (end == text.size() || end == after_first) return end;
  std::size_t last = end - 1;
  while (last > begin && !unicode::starts_character(text[last])) --last;
  return last;
}

std::size_t WordScanner::end_of_gpt2_word(std::string_view text, std::size_t begin) const {
  if (text[begin] == '\'') {
    if (const std::size_t length = contraction_length(text, begin, false)) return begin + length;
  }
  const Next first = at(text, begin);
  if (first.kind != space) return skip(text, first.end, first.kind);
  if (text[begin] == ' ' && first.end < text.size()) {
    const Next second = at(text, first.end);
    if (second.kind != space) return skip(text, second.end, second.kind);
  }
  return end_of_spaces(text, begin, first.end);
}

std::size_t WordScanner::end_of_llama3_word(std::string_view text, std::size_t begin) const {
  if (text[begin] == '\'') {
    if (const std::size_t length = contraction_length(text, begin, true)) return begin + length;
  }
  const Next first = at(text, begin);
  if (first.kind == letter) return skip(text, first.end, letter);
  if (first.kind == number) {
    std::size_t end = first.end;
    for (int count = 1; count < longest_number_ && end < text.size(); ++count) {
      const Next next = at(text, end);
      if (next.kind != number) break;
      end = next.end;
    }
    return end;
  }

  const auto end_of_symbols = [&](std::size_t position) {
    std::size_t end = skip(text, position, other);
    while (end < text.size() && is_newline(text[end])) ++end;
    return end;
  };
  if (first.end < text.size() && !is_newline(text[begin])) {
    const Next second = at(text, first.end);
    if (second.kind == letter) return skip(text, second.end, letter);
    if (text[begin] == ' ' && second.kind == other) return end_of_symbols(second.end);
  }
  if (first.kind == other) return end_of_symbols(first.end);

  // White space up to its last line end, if it has one.
  const std::size_t end = skip(text, first.end, space);
  for (std::size_t position = end; position > begin; --position) {
    if (is_newline(text[position - 1])) return position;
  }
  return end_of_spaces(text, begin, first.end);
}

}  // namespace heddle
