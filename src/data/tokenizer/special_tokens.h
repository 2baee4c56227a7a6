#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "data/tokenizer.h"

namespace heddle {

/// What the other files of a model folder say about its tokenizer.
struct SpecialTokens {
  std::optional<std::int32_t> bos_id, eos_id;
  std::optional<bool> add_bos_token, add_eos_token;
};

/// Reads what the files of a folder say, the first that speaks of a token deciding: tokenizer_config.json,
/// special_tokens_map.json (names), the tokenizer itself, generation_config.json, config.json (ids).
SpecialTokens read_special_tokens(const std::filesystem::path& folder, const Tokenizer& tokenizer);

}  // namespace heddle
