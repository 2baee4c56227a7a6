#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// SentencePiece's `precompiled_charsmap`: what to replace, as a double array trie (Darts), and by what.
class Charsmap {
 public:
  struct Rule {
    std::size_t length;  ///< bytes that it replaces
    std::string_view replacement;
  };

  /// `where` names the bytes in messages. Throws Error if they hold no trie, or replacements that are not UTF-8.
  Charsmap(std::string_view bytes, const std::string& where);

  /// The shortest rule that `text` begins with, as Hugging Face's library takes it.
  std::optional<Rule> shortest(std::string_view text) const { return find(text, true); }
  /// The longest, as SentencePiece takes it.
  std::optional<Rule> longest(std::string_view text) const { return find(text, false); }

 private:
  std::optional<Rule> find(std::string_view text, bool first) const;
  std::optional<std::string_view> replacement(std::size_t begin) const;

  std::vector<std::uint32_t> units_;
  std::string replacements_;  // each ends with U+0000
};

}  // namespace heddle
