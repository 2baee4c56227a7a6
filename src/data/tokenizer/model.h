#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "data/tokenizer/json_entry.h"
#include "data/tokenizer/vocabulary.h"
#include "data/tokenizer/word_cache.h"

namespace heddle {

/// `model` of tokenizer.json: from words to ids. Immutable; the cache is the calling thread's.
class TokenModel {
 public:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}
  virtual ~TokenModel() = default;

  /// Appends the ids of a word that is not empty.
  virtual void tokenize(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }

  /// Throws Error for an unknown type or a wrong member.
  static std::unique_ptr<TokenModel> read(const JsonEntry& entry);

 private:
  Vocabulary vocabulary_;
};

}  // namespace heddle
