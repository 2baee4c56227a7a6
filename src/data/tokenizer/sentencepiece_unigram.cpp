#include <algorithm>
#include <cfloat>

#include "data/tokenizer/sentencepiece_segmenter.h"
#include "data/tokenizer/unicode.h"

namespace heddle {
namespace {

constexpr float unknown_penalty = 10;
/// Sums below this start from 0 again, so that single precision tells pieces apart in long texts; the library's value.
constexpr float rebase_below = -100000;

class Unigram final : public SentencePieceSegmenter {
 public:
  explicit Unigram(const SentencePieces& pieces) : pieces_(pieces) {
    using Type = SentencePieces::Type;
    float lowest = FLT_MAX;
    for (std::int32_t id = 0; id < pieces.size(); ++id) {
      const Type type = pieces.type(id);
      if (type == Type::normal) {
        lowest = std::min(lowest, pieces.score(id));
        highest_ = std::max(highest_, pieces.score(id));
      }
      if (type == Type::normal || type == Type::user_defined) {
        trie_.add(pieces.text(id), id);
        longest_ = std::max(longest_, pieces.text(id).size());
      }
    }
    unknown_score_ = lowest - unknown_penalty;
  }

  void segment(std::string_view text, WordCache&, std::vector<std::int32_t>& ids) const override {
    std::vector<Best> best(text.size() + 1);
    fill(text, best);
    std::vector<std::size_t> ends;
    for (std::size_t end = text.size(); end > 0; end = best[end].begin) ends.push_back(end);
    const std::size_t start = ids.size();
    for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
      const Best& last = best[*end];
      pieces_.append(text.substr(last.begin, *end - last.begin), last.id, start, ids);
    }
  }

 private:
  struct Best {  // the best cut of what ends at a byte: its last piece
    float score = 0;
    std::int32_t id = Vocabulary::none;
    std::size_t begin = std::string_view::npos;
  };

  void fill(std::string_view text, std::vector<Best>& best) const {
    const auto offer = [&best](std::size_t begin, std::size_t end, float score, std::int32_t id) {
      Best& target = best[end];
      if (target.begin == std::string_view::npos || score > target.score) target = {score, id, begin};
    };
    for (std::size_t begin = 0; begin < text.size();) {
      if (best[begin].score < rebase_below) rebase(best, begin);
      const float so_far = best[begin].score;
      const std::size_t next = begin + static_cast<std::size_t>(unicode::decode(text.data() + begin).length);
      bool covers_character = false;
      std::int32_t node = ByteTrie::root;
      for (std::size_t at = begin; at < text.size(); ++at) {
        node = trie_.step(node, text[at]);
        if (node == ByteTrie::none) break;
        const std::int32_t id = trie_.value(node);
        if (id == ByteTrie::none) continue;
        offer(begin, at + 1, score_of(id, at + 1 - begin) + so_far, id);
        covers_character = covers_character || at + 1 == next;
      }
      if (!covers_character) offer(begin, next, unknown_score_ + so_far, pieces_.unk_id());
      begin = next;
    }
  }

  /// Takes the sum at `begin` off all that are offered so far from there on.
  void rebase(std::vector<Best>& best, std::size_t begin) const {
    const float base = best[begin].score;
    for (std::size_t at = begin; at < best.size() && at <= begin + longest_; ++at) {
      if (best[at].begin != std::string_view::npos) best[at].score -= base;
    }
  }

  /// A user-defined piece is given so much that it is always taken.
  float score_of(std::int32_t id, std::size_t bytes) const {
    if (pieces_.type(id) != SentencePieces::Type::user_defined) return pieces_.score(id);
    return static_cast<float>(static_cast<double>(static_cast<float>(bytes) * highest_) - 0.1);
  }

  const SentencePieces& pieces_;
  ByteTrie trie_;
  std::size_t longest_ = 4;  // bytes of a piece, or of an unknown character
  float highest_ = FLT_MIN, unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<SentencePieceSegmenter> make_unigram_segmenter(const SentencePieces& pieces) {
  return std::make_unique<Unigram>(pieces);
}

}  // namespace heddle
