#pragma once

#include <memory>

#include "data/tokenizer/normalizers.h"

namespace heddle {

/// SentencePiece's normalization rules as Hugging Face's library applies them: the member `precompiled_charsmap`, in
/// base64.
std::unique_ptr<Normalizer> read_precompiled_normalizer(const JsonEntry& entry);

}  // namespace heddle
