#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "formats/json.h"

namespace heddle {

/// What a name under tokenizer.ggml.pre stands for, as members of a tokenizer.json.
struct GgufPreTokenizer {
  Json normalizer, pre_tokenizer;
  bool ignore_merges = false;
  bool adds_bos = false;  ///< where the file does not say
};

/// None for a name that is not known.
std::optional<GgufPreTokenizer> find_gguf_pre_tokenizer(std::string_view name);

/// The way back: the name for what a tokenizer.json with byte-level BPE says, the first of several; "" if there is
/// none.
std::string gguf_pre_tokenizer_name(const Json& document);

}  // namespace heddle
