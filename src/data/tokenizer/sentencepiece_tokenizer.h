#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "data/tokenizer.h"
#include "data/tokenizer/byte_trie.h"
#include "data/tokenizer/sentencepiece_normalizer.h"
#include "data/tokenizer/sentencepiece_segmenter.h"
#include "data/tokenizer/special_tokens.h"
#include "data/tokenizer/tokenizer_settings.h"
#include "data/tokenizer/word_cache.h"

namespace heddle {

/// A SentencePiece model: ids and texts are those of the library `sentencepiece`. In a model folder, added and special
/// tokens are cut out of the text first, as Hugging Face's slow tokenizers do, and what lies between is
/// SentencePiece's.
class SentencePieceTokenizer final : public Tokenizer {
 public:
  /// Throws Error, naming `file`, for a model that the library refuses.
  SentencePieceTokenizer(const SentencePieceModel& model, const TokenizerSettings& settings, const std::string& file,
                         std::string fingerprint);

  void set_special_tokens(const SpecialTokens& special_tokens) { special_tokens_ = special_tokens; }

  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens) const override;
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const override;
  std::int32_t vocab_size() const override { return vocab_size_; }
  std::optional<std::int32_t> token_to_id(std::string_view token) const override;
  std::string id_to_token(std::int32_t id) const override;
  std::optional<std::int32_t> bos_id() const override { return special_tokens_.bos_id; }
  std::optional<std::int32_t> eos_id() const override { return special_tokens_.eos_id; }
  std::optional<bool> add_bos_token() const override { return special_tokens_.add_bos_token; }
  std::optional<bool> add_eos_token() const override { return special_tokens_.add_eos_token; }
  std::string fingerprint() const override;

 private:
  /// A text between added tokens, or one of these.
  struct Part {
    std::string text;
    const AddedToken* token = nullptr;
  };

  void add_special_tokens(const SentencePieceModel& model, const TokenizerSettings& settings);
  void add(AddedToken token);
  std::vector<Part> cut(std::string_view text) const;
  const AddedToken* find_token(std::string_view text, std::size_t begin) const;
  void encode_parts(std::string_view text, std::vector<std::int32_t>& ids) const;
  bool is_blank(std::int32_t id, std::string_view text) const;
  void encode_text(std::string_view text, bool add_blank, WordCache& cache, std::vector<std::int32_t>& ids) const;
  void encode_without_prefix(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const;

  std::string file_;
  SentencePieces pieces_;
  SentencePieceNormalizer normalizer_;
  std::optional<SentencePieceNormalizer> denormalizer_;
  std::unique_ptr<SentencePieceSegmenter> segmenter_;
  bool drops_first_blank_, drops_all_blanks_;  // decoding takes one blank, or all, off the beginning
  bool is_folder_, legacy_, add_prefix_space_;
  std::string unk_surface_, unk_token_;
  std::unordered_map<std::int32_t, AddedToken> added_;
  std::unordered_set<std::string> named_;                   // special tokens that the files or the model name
  std::unordered_map<std::int32_t, std::int32_t> renamed_;  // pieces whose text an added token has, with another id
  ByteTrie added_texts_;
  std::int32_t vocab_size_ = 0;
  SpecialTokens special_tokens_;
  std::string fingerprint_;
  mutable WordCachePool caches_;
};

}  // namespace heddle
