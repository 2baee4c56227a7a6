#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace heddle {

/// Text rows to ids: the special tokens that the tokenizer's post-processor adds, and end-of-text at the end. BOS is as
/// `add_bos` says, else as the tokenizer's own add_bos_token does; `add_eos` false leaves end-of-text off. A row never
/// starts with two BOS nor ends with two end-of-texts, whoever wrote them.
class RowEncoder {
 public:
  /// `tokenizer` must outlive the encoder. Throws Error if a token is asked for that the tokenizer does not have.
  RowEncoder(const Tokenizer& tokenizer, std::optional<bool> add_bos, std::optional<bool> add_eos);

  /// May be called from many threads at once.
  std::vector<std::int32_t> encode(std::string_view text) const;

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// What every row starts and ends with; part of the key of the token cache.
  const std::vector<std::int32_t>& leading() const { return leading_; }
  const std::vector<std::int32_t>& trailing() const { return trailing_; }

 private:
  const Tokenizer* tokenizer_;
  std::optional<std::int32_t> bos_, eos_;
  std::vector<std::int32_t> leading_, trailing_;
};

}  // namespace heddle
