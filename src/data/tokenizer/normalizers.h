#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/tokenizer/json_entry.h"
#include "data/tokenizer/piece.h"

namespace heddle {

/// `normalizer` of tokenizer.json: changes text before it is cut. Immutable.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(Piece& piece) const = 0;
  /// True if apply() would leave any piece with this text as it is; found without a copy where that is easy.
  virtual bool leaves(std::string_view) const { return false; }

  std::string apply(std::string_view text) const {
    Piece piece{std::string(text)};
    apply(piece);
    return std::move(piece.text);
  }

  /// Throws Error for an unknown type or a wrong member.
  static std::unique_ptr<Normalizer> read(const JsonEntry& entry);
};

/// Rewrites a piece character by character: `change(code, out)` appends what the character becomes.
template <typename Change>
void rewrite_characters(Piece& piece, Change change) {
  std::string out;
  out.reserve(piece.text.size());
  std::size_t start_bytes = 0;
  for (std::size_t at = 0; at < piece.text.size();) {
    const unicode::Character c = unicode::decode(piece.text.data() + at);
    change(c.code, out);
    if (at < piece.start_bytes) start_bytes = out.size();
    at += static_cast<std::size_t>(c.length);
  }
  piece.rewrite(std::move(out), start_bytes);
}

/// Replaces each match by `content`; what replaces a match stands for the last character of it.
void replace_matches(Piece& piece, const Pattern& pattern, std::string_view content);

}  // namespace heddle
