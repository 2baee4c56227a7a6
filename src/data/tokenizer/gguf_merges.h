#pragma once

#include <string_view>
#include <vector>

#include "formats/json.h"

namespace heddle {

/// Values of tokenizer.ggml.token_type: SentencePiece's.
enum class GgufTokenType {
  undefined = 0,
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

struct ScoredToken {
  std::string_view text;
  double score;
};

/// Merges "LEFT RIGHT" that do what SentencePiece does with scores: any two tokens merge whose text together is one,
/// that of the best score first. Among equal ones the longer left part, then the longer right part, then the earlier
/// token comes first: the order of transformers' converter.
Json merges_by_score(const std::vector<ScoredToken>& tokens);

}  // namespace heddle
