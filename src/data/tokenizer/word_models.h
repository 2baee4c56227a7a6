#pragma once

#include <memory>

#include "data/tokenizer/model.h"

namespace heddle {

/// The longest token first, then the longest that continues it; a word that cannot be covered is unknown as a whole.
/// (Devlin et al. 2018, arXiv:1810.04805, section 3)
std::unique_ptr<TokenModel> read_word_piece(const JsonEntry& entry);
/// Each word is a token, or unknown.
std::unique_ptr<TokenModel> read_word_level(const JsonEntry& entry);

}  // namespace heddle
