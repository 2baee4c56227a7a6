#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "data/tokenizer/byte_trie.h"
#include "data/tokenizer/json_entry.h"
#include "data/tokenizer/normalizers.h"
#include "data/tokenizer/vocabulary.h"

namespace heddle {

/// One of `added_tokens`: found in the text before anything else.
struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool single_word = false;  ///< not inside a word
  bool lstrip = false;       ///< takes the white space on its left with it
  bool rstrip = false;
  bool normalized = false;  ///< looked for in the normalized text, in its own normalized form
  bool special = false;     ///< left out by decode(skip_special_tokens)
};

/// Tokens that the files beside a tokenizer add to its own; ids are set in `added` alone.
struct AddedTokenLists {
  std::vector<AddedToken> added;         ///< added_tokens_decoder or added_tokens.json, in order of ids
  std::vector<AddedToken> ends;          ///< bos_token and eos_token
  std::vector<AddedToken> special;       ///< unk_token, sep_token, pad_token, cls_token, mask_token
  std::vector<AddedToken> more_special;  ///< additional_special_tokens

  /// All of it in one text, for digests.
  std::string text() const;
};

/// A part of a text: an added token, or what lies between.
struct AddedSpan {
  std::size_t begin, end;
  std::int32_t id;  // AddedTokens::none: no added token
};

class AddedTokens {
 public:
  static constexpr std::int32_t none = -1;

  AddedTokens() = default;
  /// `list` is added_tokens of tokenizer.json. Ids must be those that Hugging Face's library would give: that of the
  /// model's token of the same text, or else the next free one.
  /// Those of `lists` come after, as transformers' AutoTokenizer adds them: one that is there takes the new flags
  /// (`added`) or becomes special (`ends`, `special`) and stays special; a new one has the next free id, whatever the
  /// list says. New ones among `ends` are left out, for the caller to refuse.
  AddedTokens(const std::optional<JsonEntry>& list, const AddedTokenLists& lists, const Vocabulary& model,
              const Normalizer* normalizer);

  /// Cuts a text at the tokens that are looked for as they are written.
  std::vector<AddedSpan> find_raw(std::string_view text) const { return find(text, raw_); }
  /// Cuts a normalized text at the others.
  std::vector<AddedSpan> find_normalized(std::string_view text) const { return find(text, normalized_); }
  bool has_normalized() const { return !normalized_.is_empty; }

  const AddedToken* by_id(std::int32_t id) const;
  std::int32_t find_id(std::string_view content) const;
  /// What decoding sees of the token: its normalized form, if it is looked for in that.
  const std::string& decoded_form(std::int32_t id) const { return forms_.at(id); }
  bool is_special(std::string_view content) const { return special_.contains(std::string(content)); }
  /// Greatest id + 1.
  std::int32_t end() const { return end_; }

 private:
  struct Set {
    ByteTrie trie;
    std::array<bool, 256> begins{};  // bytes that some token begins with
    bool is_empty = true;
    void add(std::string_view text, std::int32_t id);
  };

  void check_id(const AddedToken& token, const JsonEntry& entry, const Vocabulary& model) const;
  std::int32_t id_for(const std::string& content, const Vocabulary& model) const;
  void add(AddedToken token, const Vocabulary& model);
  void make_special(const AddedToken& token, const Vocabulary& model);
  std::vector<AddedSpan> find(std::string_view text, const Set& set) const;

  std::unordered_map<std::int32_t, AddedToken> tokens_;
  std::unordered_map<std::int32_t, std::string> forms_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_set<std::string> special_;
  Set raw_, normalized_;
  std::int32_t end_ = 0, next_id_ = 0;
};

}  // namespace heddle
