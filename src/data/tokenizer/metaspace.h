#pragma once

#include <string>
#include <string_view>

#include "data/tokenizer/json_entry.h"

namespace heddle {

/// Spaces made visible, as SentencePiece does: members of the pre-tokenizer and of the decoder Metaspace.
struct Metaspace {
  enum class Prepend { first, never, always };

  explicit Metaspace(const JsonEntry& entry);

  std::string replacement;  // one character
  Prepend prepend;
  bool split;
};

}  // namespace heddle
