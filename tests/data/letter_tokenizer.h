#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace heddle {

/// Ids by hand: 'a' is 1, 'b' 2, ..., 'z' 26, anything else 27; '$' is end-of-text (28), '^' beginning-of-text (29).
class LetterTokenizer : public Tokenizer {
 public:
  static constexpr std::int32_t kEos = 28, kBos = 29, kVocab = 30;

  bool has_bos = true, has_eos = true;
  bool post_processor_adds_bos = false, post_processor_adds_eos = false;
  std::optional<bool> says_add_bos;
  std::string name = "letters";
  mutable std::atomic<int> texts_encoded = 0;

  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens) const override {
    ++texts_encoded;
    std::vector<std::int32_t> ids;
    if (add_special_tokens && post_processor_adds_bos) ids.push_back(kBos);
    for (const char c : text)
      ids.push_back(c >= 'a' && c <= 'z' ? c - 'a' + 1 : c == '$' ? kEos : c == '^' ? kBos : 27);
    if (add_special_tokens && post_processor_adds_eos) ids.push_back(kEos);
    return ids;
  }
  std::string decode(std::span<const std::int32_t>, bool) const override { return {}; }
  std::int32_t vocab_size() const override { return kVocab; }
  std::optional<std::int32_t> token_to_id(std::string_view) const override { return std::nullopt; }
  std::string id_to_token(std::int32_t) const override { return {}; }
  std::optional<std::int32_t> bos_id() const override { return has_bos ? std::optional(kBos) : std::nullopt; }
  std::optional<std::int32_t> eos_id() const override { return has_eos ? std::optional(kEos) : std::nullopt; }
  std::optional<bool> add_bos_token() const override { return says_add_bos; }
  std::optional<bool> add_eos_token() const override { return std::nullopt; }
  std::string fingerprint() const override { return name; }
};

}  // namespace heddle
