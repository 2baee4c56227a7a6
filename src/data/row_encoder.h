#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "data/text_encoder.h"
#include "data/tokenizer.h"

namespace heddle {

/// What a tokenizer's post-processor puts around every text.
struct SurroundingIds {
  std::vector<std::int32_t> leading, trailing;
};
SurroundingIds find_surrounding_ids(const Tokenizer& tokenizer);

/// Text rows to ids: the special tokens that the tokenizer's post-processor adds, and end-of-text at the end. BOS is as
/// `add_bos` says, else as the tokenizer's own add_bos_token does; `add_eos` false leaves end-of-text off. A row never
/// starts with two BOS nor ends with two end-of-texts, whoever wrote them.
class RowEncoder {
 public:
  /// `tokenizer` must outlive the encoder. Throws Error if a token is asked for that the tokenizer does not have.
  RowEncoder(const Tokenizer& tokenizer, std::optional<bool> add_bos, std::optional<bool> add_eos);

  /// May be called from many threads at once; a long text is encoded by all threads if the call comes from none of
  /// them. The text must be UTF-8.
  std::vector<std::int32_t> encode(std::string_view text) const;
  /// Puts what a row starts and ends with around the ids of a text; returns how many came before them.
  std::size_t surround(std::vector<std::int32_t>& ids) const;
  /// `add_bos` is set, and these ids, to which nothing else is added, do not start with BOS.
  bool must_add_bos(std::span<const std::int32_t> ids) const;
  /// The same row piece by piece, in bounded memory; as encode_text() says.
  void encode(const ReadText& read, const UseIds& use) const;

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// What every row starts and ends with; part of the key of the token cache.
  const std::vector<std::int32_t>& leading() const { return leading_; }
  const std::vector<std::int32_t>& trailing() const { return trailing_; }

 private:
  const Tokenizer* tokenizer_;
  bool wants_leading(std::optional<std::int32_t> first) const;
  bool wants_trailing(std::optional<std::int32_t> last) const;

  std::optional<std::int32_t> bos_, eos_;
  bool asks_for_bos_ = false;
  std::vector<std::int32_t> leading_, trailing_;
};

}  // namespace heddle
