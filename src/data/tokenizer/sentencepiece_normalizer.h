#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/sentencepiece_pieces.h"

namespace heddle {

/// SentencePiece's normalization: rules of the charsmap, white space made single and visible, a blank put before (or
/// after) the text. User-defined pieces are left as they are.
class SentencePieceNormalizer {
 public:
  /// `pieces` may be null: no user-defined ones. `where` names the specification in messages.
  SentencePieceNormalizer(const SentencePieceModel::Normalization& spec, bool blank_after, const SentencePieces* pieces,
                          const std::string& where);

  /// `add_blank`: false where the blank of add_dummy_prefix is not wanted.
  std::string apply(std::string_view text, bool add_blank = true) const;

 private:
  struct Part {
    std::size_t length;  // bytes of the text that it stands for
    std::string_view text;
  };
  Part first_part(std::string_view text) const;

  SentencePieceModel::Normalization spec_;
  bool blank_after_;
  const SentencePieces* pieces_;
  std::optional<Charsmap> charsmap_;
};

}  // namespace heddle
