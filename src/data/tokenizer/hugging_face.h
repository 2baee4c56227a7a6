#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/decoders.h"
#include "data/tokenizer/model.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/post_processors.h"
#include "data/tokenizer/pre_tokenizers.h"
#include "data/tokenizer/special_tokens.h"
#include "data/tokenizer/text_cutter.h"

namespace heddle {

/// The pipeline of Hugging Face's `tokenizers`: added tokens, normalizer, pre-tokenizer, model, post-processor; and
/// decoder. (https://huggingface.co/docs/tokenizers/pipeline)
class HuggingFaceTokenizer final : public Tokenizer {
 public:
  /// `entry` is the document tokenizer.json. Its `truncation` and `padding` are not read: rows are cut by the data set.
  /// `lists` are the tokens that the files beside it add.
  HuggingFaceTokenizer(const JsonEntry& entry, std::string fingerprint, const AddedTokenLists& lists = {});

  void set_special_tokens(const SpecialTokens& special_tokens) { special_tokens_ = special_tokens; }

  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens) const override;
  std::optional<Cut> find_cut(std::string_view text, std::size_t from) const override;
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const override;
  std::int32_t vocab_size() const override;
  std::optional<std::int32_t> token_to_id(std::string_view token) const override;
  std::string id_to_token(std::int32_t id) const override;
  std::optional<std::int32_t> bos_id() const override { return special_tokens_.bos_id; }
  std::optional<std::int32_t> eos_id() const override { return special_tokens_.eos_id; }
  std::optional<bool> add_bos_token() const override { return special_tokens_.add_bos_token; }
  std::optional<bool> add_eos_token() const override { return special_tokens_.add_eos_token; }
  std::string fingerprint() const override;

 private:
  void encode_words(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const;
  void encode_words_between_digits(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const;
  void encode_bytes(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const;
  void encode_pieces(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const;
  bool has_token(std::int32_t id) const { return model_->vocabulary().contains(id) || added_.by_id(id) != nullptr; }

  std::unique_ptr<Normalizer> normalizer_;  // null: none
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  std::unique_ptr<TokenModel> model_;
  std::unique_ptr<PostProcessor> post_processor_;
  std::unique_ptr<Decoder> decoder_;
  AddedTokens added_;
  // Byte-level BPE with a known split works on the text itself: no pieces are made. bpe_ is then model_.
  std::optional<ByteLevelWords> words_;
  std::optional<WordScanner> scanner_;
  const Bpe* bpe_ = nullptr;
  std::optional<TextCutter> cutter_;  // refers to the parts above
  SpecialTokens special_tokens_;
  std::string fingerprint_;
  mutable WordCachePool caches_;
};

}  // namespace heddle
