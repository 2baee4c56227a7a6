#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/byte_trie.h"
#include "data/tokenizer/sentencepiece_model.h"
#include "data/tokenizer/vocabulary.h"

namespace heddle {

/// The pieces of a SentencePiece model and how its library looks them up: those that stand for text (normal,
/// user-defined, unused) apart from the reserved ones (unknown, control, byte). Immutable.
class SentencePieces {
 public:
  using Type = SentencePieceModel::PieceType;

  /// Throws Error, naming `file`, where the library refuses the model: a piece given twice, no unknown piece or two,
  /// byte pieces missing or where byte_fallback is off.
  SentencePieces(const SentencePieceModel& model, const std::string& file);

  std::int32_t size() const { return static_cast<std::int32_t>(types_.size()); }
  bool contains(std::int32_t id) const { return id >= 0 && id < size(); }
  Type type(std::int32_t id) const { return types_[static_cast<std::size_t>(id)]; }
  float score(std::int32_t id) const { return scores_[static_cast<std::size_t>(id)]; }
  std::string_view text(std::int32_t id) const {
    return type(id) == Type::normal || type(id) == Type::user_defined || type(id) == Type::unused ? textual_.token(id)
                                                                                                  : reserved_.token(id);
  }
  /// The byte that a piece of type byte stands for.
  unsigned char byte(std::int32_t id) const;

  /// The id of a piece: reserved ones first; Vocabulary::none if there is none.
  std::int32_t find(std::string_view text) const;
  /// Among those that stand for text.
  std::int32_t find_textual(std::string_view text) const { return textual_.find(text); }
  std::int32_t unk_id() const { return unk_id_; }

  /// Bytes of the longest user-defined piece that `text` begins with; 0: none.
  std::size_t match_user_defined(std::string_view text) const;
  bool has_user_defined() const { return has_user_defined_; }

  /// Appends the id of a piece of normalized text. An unknown one becomes bytes where the model has them; else unknown
  /// ones side by side are one, but for ids before position `start`.
  void append(std::string_view text, std::int32_t id, std::size_t start, std::vector<std::int32_t>& ids) const;

 private:
  Vocabulary textual_, reserved_;
  std::vector<Type> types_;
  std::vector<float> scores_;
  ByteTrie user_defined_;
  bool has_user_defined_ = false, byte_fallback_;
  std::int32_t unk_id_ = Vocabulary::none;
  std::array<std::int32_t, 256> byte_ids_{};
};

}  // namespace heddle
