#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "data/tokenizer/json_entry.h"
#include "data/tokenizer/piece.h"
#include "data/tokenizer/words.h"

namespace heddle {

/// `pre_tokenizer` of tokenizer.json: cuts pieces into the words that the model sees. Immutable.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Added tokens among the pieces stay as they are.
  virtual void apply(std::vector<Piece>& pieces) const = 0;

  /// Throws Error for an unknown type or a wrong member.
  static std::unique_ptr<PreTokenizer> read(const JsonEntry& entry);
};

/// A byte-level pre-tokenizer whose words can be cut from the text as it is, without copies: ByteLevel with its own
/// pattern, perhaps after Digits, or a known Split before ByteLevel.
struct ByteLevelWords {
  WordRule rule;
  bool add_prefix_space;
  bool split_digits;  ///< each number character alone
};
std::optional<ByteLevelWords> find_byte_level_words(const JsonEntry& entry);

}  // namespace heddle
