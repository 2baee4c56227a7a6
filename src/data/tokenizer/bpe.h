#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/tokenizer/model.h"
#include "data/tokenizer/pair_table.h"

namespace heddle {

/// Byte-pair encoding (Sennrich, Haddow, Birch 2016, arXiv:1508.07909): a word's characters are symbols, and the
/// adjacent pair of the lowest rank is merged, leftmost first, until none is left.
class Bpe final : public TokenModel {
 public:
  struct Options {
    std::optional<std::string> unk_token, continuing_subword_prefix, end_of_word_suffix;
    bool fuse_unk = false, byte_fallback = false, ignore_merges = false;
  };
  using MergeList = std::vector<std::pair<std::string, std::string>>;

  /// `where` names the merges in messages. Throws Error if a merge's parts or its result are no tokens.
  Bpe(Vocabulary vocabulary, const MergeList& merges, Options options, const std::string& where);

  static std::unique_ptr<Bpe> read(const JsonEntry& entry);

  void tokenize(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const override;
  /// The same for a word given as the bytes that its characters stand for (ByteLevel).
  void tokenize_bytes(std::string_view bytes, WordCache& cache, std::vector<std::int32_t>& ids) const;
  /// True if these two characters, side by side, never come into one token, whatever stands around them.
  bool are_apart(char32_t left, char32_t right) const;

 private:
  void tokenize_whole(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const;
  void tokenize_parts(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const;
  void add_symbols(std::string_view word, std::vector<WordCache::Symbol>& symbols) const;
  void merge_symbols(WordCache& cache) const;
  bool fall_back_to_bytes(std::string_view text, std::vector<WordCache::Symbol>& symbols) const;
  std::int32_t find_character(char32_t code, std::string_view text) const;
  void find_joined_characters(const std::vector<std::int32_t>& merged);

  PairTable merges_;
  Options options_;
  bool is_plain_ = true;            // no prefix and no suffix
  bool bytes_stand_alone_ = false;  // every unknown character becomes bytes, which no merge takes
  std::int32_t unk_id_ = Vocabulary::none;
  std::array<std::int32_t, 256> byte_level_{};     // symbol of a byte's character
  std::array<std::int32_t, 256> byte_fallback_{};  // token <0xNN>
  std::vector<std::int32_t> characters_;           // ids of the first code points
  PairTable joined_;                               // pairs of characters that stand side by side in a merged token
};

}  // namespace heddle
