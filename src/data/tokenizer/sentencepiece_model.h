#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// A NormalizerSpec of a SentencePiece file.
struct SentencePieceNormalization {
  std::string charsmap;  ///< precompiled_charsmap; empty: none
  bool add_dummy_prefix = true, remove_extra_whitespaces = true, escape_whitespaces = true;
};

/// What a SentencePiece file (`tokenizer.model`) says, as far as ids depend on it.
/// (sentencepiece_model.proto of https://github.com/google/sentencepiece)
struct SentencePieceModel {
  enum class Algorithm { unigram = 1, bpe = 2, word = 3, character = 4 };
  enum class PieceType { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::normal;
  };
  using Normalization = SentencePieceNormalization;

  std::vector<Piece> pieces;  ///< in order of ids
  Algorithm algorithm = Algorithm::unigram;
  bool byte_fallback = false, treat_whitespace_as_suffix = false;
  std::string unk_piece = "<unk>", bos_piece = "<s>", eos_piece = "</s>", pad_piece = "<pad>";
  std::string unk_surface = " \xE2\x81\x87 ";  ///< what an unknown piece is decoded to
  Normalization normalizer;
  std::optional<Normalization> denormalizer;

  /// Parses the bytes of a file; `file` names it in messages. Throws Error for anything that is no sound model, and for
  /// the algorithms word and char, which no language model of the supported families uses.
  static SentencePieceModel parse(std::string_view bytes, const std::string& file);
};

}  // namespace heddle
