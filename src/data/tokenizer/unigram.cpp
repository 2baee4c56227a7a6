#include "data/tokenizer/unigram.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace heddle {
namespace {

constexpr double unknown_penalty = 10;  // as in SentencePiece

Vocabulary number_pieces(const Unigram::Pieces& pieces) {
  Vocabulary vocabulary;
  std::int32_t id = 0;
  for (const auto& piece : pieces) vocabulary.add(piece.first, id++);
  return vocabulary;
}

}  // namespace

Unigram::Unigram(const Pieces& pieces, std::optional<std::int32_t> unk_id, bool byte_fallback)
    : TokenModel(number_pieces(pieces)), unk_id_(unk_id), byte_fallback_(byte_fallback) {
  double lowest = std::numeric_limits<double>::infinity();
  for (const auto& piece : pieces) {
    trie_.add(piece.first, static_cast<std::int32_t>(scores_.size()));
    scores_.push_back(piece.second);
    lowest = std::min(lowest, piece.second);
  }
  unknown_score_ = lowest - unknown_penalty;
}

std::unique_ptr<Unigram> Unigram::read(const JsonEntry& entry) {
  const JsonEntry vocab = entry.at("vocab");
  if (!vocab.value().is_array()) vocab.refuse("a list of [token, score]");
  Pieces pieces;
  for (const Json& pair : vocab.value()) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_number()) {
      vocab.child(pair, fmt::format("[{}]", pieces.size())).refuse("[token, score]");
    }
    pieces.emplace_back(pair[0].get<std::string>(), pair[1].get<double>());
  }
  std::optional<std::int32_t> unk_id;
  if (const auto id = entry.find("unk_id")) {
    unk_id = id->count();
    if (static_cast<std::size_t>(*unk_id) >= pieces.size())
      id->refuse(fmt::format("below {}, the size of vocab", pieces.size()));
  }
  return std::make_unique<Unigram>(pieces, unk_id, entry.boolean("byte_fallback", false));
}

void Unigram::add_unknown(std::string_view text, std::vector<std::int32_t>& ids) const {
  const std::size_t before = ids.size();
  bool all_bytes = byte_fallback_;
  for (std::size_t i = 0; all_bytes && i < text.size(); ++i) {
    const std::int32_t id = vocabulary().find(fmt::format("<0x{:02X}>", static_cast<unsigned char>(text[i])));
    all_bytes = id != Vocabulary::none;
    ids.push_back(id);
  }
  if (all_bytes) return;
  ids.resize(before);
  ids.push_back(*unk_id_);
}

void Unigram::tokenize(std::string_view word, WordCache&, std::vector<std::int32_t>& ids) const {
  struct Best {
    double score = 0;
    std::size_t begin = std::string_view::npos;
    std::int32_t id = Vocabulary::none;
  };
  std::vector<Best> best(word.size() + 1);  // the best cut of what ends at each byte
  const auto offer = [&best](std::size_t begin, std::size_t end, double score, std::int32_t id) {
    Best& target = best[end];
    if (target.begin == std::string_view::npos || score > target.score) target = {score, begin, id};
  };
  for (std::size_t begin = 0; begin < word.size();) {
    const double so_far = best[begin].score;
    const std::size_t next = begin + static_cast<std::size_t>(unicode::decode(word.data() + begin).length);
    bool covers_character = false;
    std::int32_t node = ByteTrie::root;
    for (std::size_t at = begin; at < word.size(); ++at) {
      node = trie_.step(node, word[at]);
      if (node == ByteTrie::none) break;
      const std::int32_t id = trie_.value(node);
      if (id == ByteTrie::none) continue;
      offer(begin, at + 1, so_far + scores_[static_cast<std::size_t>(id)], id);
      covers_character = covers_character || at + 1 == next;
    }
    if (!covers_character) {
      if (!unk_id_)
        fail("tokenizer.json: model.unk_id is null; it is needed for {}",
             Json(std::string(word.substr(begin, next - begin))).dump());
      offer(begin, next, so_far + unknown_score_, *unk_id_);
    }
    begin = next;
  }

  std::vector<std::pair<std::size_t, std::size_t>> cut;  // last first; unknown pieces side by side are one
  bool last_unknown = false;
  for (std::size_t end = word.size(); end > 0; end = best[end].begin) {
    const bool is_unknown = unk_id_ && best[end].id == *unk_id_;
    if (is_unknown && last_unknown) {
      cut.back().first = best[end].begin;
    } else {
      cut.emplace_back(best[end].begin, end);
    }
    last_unknown = is_unknown;
  }
  for (auto part = cut.rbegin(); part != cut.rend(); ++part) {
    const std::string_view text = word.substr(part->first, part->second - part->first);
    const std::int32_t id = vocabulary().find(text);
    if (id != Vocabulary::none) {
      ids.push_back(id);
    } else {
      if (!unk_id_) fail("tokenizer.json: model.unk_id is null; it is needed for {}", Json(std::string(text)).dump());
      add_unknown(text, ids);
    }
  }
}

}  // namespace heddle
