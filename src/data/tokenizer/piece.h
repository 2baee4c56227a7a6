#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer/pattern.h"

namespace heddle {

/// A part of the input on its way to ids. Of the alignment with the input that Hugging Face's library keeps, only this
/// decides ids: whether the part begins where the input begins (Metaspace's `prepend_scheme: first`).
struct Piece {
  static constexpr std::int32_t unknown = -1;

  std::string text;
  std::int32_t id = unknown;  ///< of the added token it is, if it is one
  bool at_start = true;       ///< begins at the start of the input
  std::size_t start_bytes;    ///< leading bytes of `text` that stand for the input's first character

  explicit Piece(std::string whole)
      : text(std::move(whole)),
        start_bytes(text.empty() ? 0 : static_cast<std::size_t>(unicode::decode(text.data()).length)) {}

  Piece slice(std::size_t begin, std::size_t end) const {
    Piece part;
    part.text = text.substr(begin, end - begin);
    part.at_start = at_start && (begin == end || begin < start_bytes);
    part.start_bytes = begin < start_bytes ? start_bytes - begin : 0;
    return part;
  }

  /// Sets a new text whose leading `new_start_bytes` bytes stand for the input's first character.
  void rewrite(std::string changed, std::size_t new_start_bytes) {
    text = std::move(changed);
    start_bytes = new_start_bytes;
  }

  void prepend(std::string_view prefix) {
    if (text.empty()) return;
    text.insert(0, prefix);
    if (start_bytes > 0) start_bytes += prefix.size();
  }

 private:
  Piece() : start_bytes(0) {}
};

/// `behavior` of Split and Punctuation.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };
SplitBehavior read_split_behavior(const JsonEntry& entry);

/// Turns the stretches of a pattern into those of the pieces to keep; empty ones are left out.
std::vector<Stretch> apply_behavior(std::vector<Stretch> stretches, SplitBehavior behavior);

/// Replaces each piece that is no added token by the parts that `split(piece)` gives; empty parts vanish.
template <typename Split>
void split_pieces(std::vector<Piece>& pieces, Split split) {
  std::vector<Piece> out;
  out.reserve(pieces.size());
  for (Piece& piece : pieces) {
    if (piece.id != Piece::unknown) {
      out.push_back(std::move(piece));
      continue;
    }
    for (const Stretch& stretch : split(piece)) {
      if (stretch.begin != stretch.end) out.push_back(piece.slice(stretch.begin, stretch.end));
    }
  }
  pieces = std::move(out);
}

}  // namespace heddle
