#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "data/tokenizer/sentencepiece_pieces.h"
#include "data/tokenizer/word_cache.h"

namespace heddle {

/// Cuts normalized text into pieces by a SentencePiece model. Immutable; the cache is the calling thread's.
class SentencePieceSegmenter {
 public:
  virtual ~SentencePieceSegmenter() = default;
  /// Appends the ids of a text that is valid UTF-8.
  virtual void segment(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const = 0;
};

/// The most probable cut (Kudo 2018, arXiv:1804.10959), with sums in single precision as the library has them. `pieces`
/// must outlive the segmenter.
std::unique_ptr<SentencePieceSegmenter> make_unigram_segmenter(const SentencePieces& pieces);
/// Byte-pair encoding where any two symbols merge whose text together is a piece, that of the best score first. Pieces
/// of equal score merge leftmost first.
std::unique_ptr<SentencePieceSegmenter> make_bpe_segmenter(const SentencePieces& pieces);

}  // namespace heddle
