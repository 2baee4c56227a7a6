#pragma once

#include <string_view>

#include "formats/json.h"

namespace heddle {

/// The tokenizer.json that says the same as GPT-2's vocab.json and merges.txt.
Json make_gpt2_document(Json vocab, std::string_view merges);

}  // namespace heddle
