#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "data/tokenizer.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/json_entry.h"
#include "data/tokenizer/model.h"
#include "data/tokenizer/normalizers.h"

namespace heddle {

class Bpe;

/// Finds places where a long text may be cut so that its parts have, end to end, the ids of the whole. It knows of a
/// tokenizer only what it can prove from tokenizer.json; where it can prove nothing, there are no cuts. Two kinds:
///   before a space behind a letter: no split pattern that is known matches across, and without a pattern the merges
///       of the model have none; where the tokenizer puts a mark before each text and makes the same mark of a space,
///       the space is left out, since the mark of the second part stands for it
///   behind a line end, between a character other than white space and a letter
class TextCutter {
 public:
  /// The parts of the tokenizer must outlive the cutter. `document` is tokenizer.json.
  TextCutter(const JsonEntry& document, const Normalizer* normalizer, const TokenModel& model,
             const AddedTokens& added);

  /// As Tokenizer::find_cut.
  std::optional<Tokenizer::Cut> find(std::string_view text, std::size_t from) const;

 private:
  /// How a text's white space reaches the model.
  struct Spaces {
    std::string prefix;       // put before each text
    std::string space = " ";  // what a space becomes
    bool changes_letters = false, changes_lines = false;
  };

  bool read_normalizer(const JsonEntry& entry, Spaces& spaces);
  void read_pre_tokenizer(const std::optional<JsonEntry>& entry, const Spaces& spaces);
  void use_merges(std::string_view mark, const Spaces& spaces);
  bool space_is_cut(std::string_view text, std::size_t at) const;
  bool line_is_cut(std::string_view text, std::size_t at) const;
  bool is_far_from_added_tokens(std::string_view text, std::size_t at) const;

  const Normalizer* normalizer_;
  const TokenModel& model_;
  const AddedTokens& added_;
  bool cuts_spaces_ = false, cuts_lines_ = false;
  bool needs_ascii_ = false;     // the letters beside a space must be ASCII
  bool drops_space_ = false;     // the second part begins behind the space
  const Bpe* merges_ = nullptr;  // not null: a cut needs a letter that no merge joins to mark_
  char32_t mark_ = U' ';
  std::size_t reach_ = 0;  // bytes around a cut within which an added token might touch it
};

}  // namespace heddle
