#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/json_entry.h"
#include "data/tokenizer/unicode.h"

struct re_pattern_buffer;

namespace heddle {

/// A stretch of text that a pattern matched, or that lies between two matches.
struct Stretch {
  std::size_t begin, end;
  bool is_match;
};

/// `{"String": ...}` or `{"Regex": ...}` of tokenizer.json: text to look for, in Oniguruma's own syntax, with the
/// character properties of Unicode 16.
class Pattern {
 public:
  static Pattern read(const JsonEntry& entry);
  static Pattern literal(std::string text);
  static Pattern regex(const std::string& text, const std::string& where);

  /// Covers `text` with stretches, in order. An empty match just after a match is passed over, as the Rust binding
  /// does.
  std::vector<Stretch> find(std::string_view text) const;
  /// The text of the pattern when it is a literal or a regex.
  const std::string& text() const { return text_; }
  bool is_regex() const { return regex_ != nullptr; }

 private:
  std::string text_;
  std::shared_ptr<re_pattern_buffer> regex_;  // null: a literal
};

/// Covers `text` by characters that do and do not satisfy `matches`; each one that does stands alone.
template <typename Predicate>
std::vector<Stretch> find_characters(std::string_view text, Predicate matches) {
  std::vector<Stretch> stretches;
  std::size_t begin = 0, at = 0;
  while (at < text.size()) {
    const unicode::Character c = unicode::decode(text.data() + at);
    const std::size_t end = at + static_cast<std::size_t>(c.length);
    if (matches(c.code)) {
      if (begin < at) stretches.push_back({begin, at, false});
      stretches.push_back({at, end, true});
      begin = end;
    }
    at = end;
  }
  if (begin < at) stretches.push_back({begin, at, false});
  return stretches;
}

}  // namespace heddle
