#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer/json_entry.h"

namespace heddle {

/// `decoder` of tokenizer.json: turns the tokens of a text into parts of text, which are then joined. Immutable.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;

  /// Throws Error for an unknown type or a wrong member.
  static std::unique_ptr<Decoder> read(const JsonEntry& entry);
};

}  // namespace heddle
