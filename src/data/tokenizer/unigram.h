#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/tokenizer/byte_trie.h"
#include "data/tokenizer/model.h"

namespace heddle {

/// The most probable cut of a word by a unigram language model (Kudo 2018, arXiv:1804.10959).
class Unigram final : public TokenModel {
 public:
  using Pieces = std::vector<std::pair<std::string, double>>;  // token and log-probability, in order of ids

  Unigram(const Pieces& pieces, std::optional<std::int32_t> unk_id, bool byte_fallback);
  static std::unique_ptr<Unigram> read(const JsonEntry& entry);

  void tokenize(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const override;

 private:
  void add_unknown(std::string_view text, std::vector<std::int32_t>& ids) const;

  std::vector<double> scores_;
  double unknown_score_;
  std::optional<std::int32_t> unk_id_;
  bool byte_fallback_;
  ByteTrie trie_;
};

}  // namespace heddle
