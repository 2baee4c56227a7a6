#pragma once

#include <memory>

#include "data/tokenizer/normalizers.h"

namespace heddle {

/// SentencePiece's normalization rules: `precompiled_charsmap` holds a double array trie (Darts) over what to replace,
/// and the replacements.
std::unique_ptr<Normalizer> make_precompiled_normalizer(std::string_view charsmap, const std::string& where);
/// The member `precompiled_charsmap`, in base64.
std::unique_ptr<Normalizer> read_precompiled_normalizer(const JsonEntry& entry);

}  // namespace heddle
