#include <algorithm>
#include <span>
#include <unordered_map>
#include <utility>

#include "data/tokenizer/merging.h"
#include "data/tokenizer/sentencepiece_segmenter.h"
#include "data/tokenizer/unicode.h"

namespace heddle {
namespace {

using Ids = std::vector<std::int32_t>;
constexpr auto none = Vocabulary::none;
constexpr char32_t dense_characters = 0x3000;

/// Symbols are the pieces that stand for text, under their own ids, and after these the other characters that occur in
/// one. All merges of two symbols are known beforehand. A text is cut where no piece holds the characters on either
/// side next to each other: no merge reaches across, and the parts recur often enough to be remembered.
class BpeSegmenter final : public SentencePieceSegmenter {
 public:
  explicit BpeSegmenter(const SentencePieces& pieces) : pieces_(pieces) {
    add_pieces();
    add_characters();
    add_merges();
    characters_.resize(dense_characters);
    for (char32_t code = 0; code < dense_characters; ++code) {
      std::string text;
      unicode::append(text, code);
      characters_[code] = symbols_.find(text);
    }
  }

  void segment(std::string_view text, WordCache& cache, Ids& ids) const override {
    const std::size_t start = ids.size();
    Splits splits;
    std::size_t begin = 0;
    for (std::size_t at = 0; pieces_.has_user_defined() && at < text.size();) {
      const std::size_t length = pieces_.match_user_defined(text.substr(at));
      if (length == 0) {
        at += static_cast<std::size_t>(unicode::decode(text.data() + at).length);
        continue;
      }
      segment_between(text.substr(begin, at - begin), start, cache, splits, ids);
      const std::string_view piece = text.substr(at, length);
      pieces_.append(piece, symbols_.find(piece), start, ids);
      begin = at += length;
    }
    segment_between(text.substr(begin), start, cache, splits, ids);
  }

 private:
  /// How a piece that is not to be used was last seen to be made: its two symbols.
  using Splits = std::unordered_map<std::int32_t, std::pair<std::int32_t, std::int32_t>>;

  void add_pieces() {
    for (std::int32_t id = 0; id < pieces_.size(); ++id) {
      const auto type = pieces_.type(id);
      if (pieces_.find_textual(pieces_.text(id)) != id) continue;
      symbols_.add(pieces_.text(id), id);
      has_unused_ = has_unused_ || type == SentencePieces::Type::unused;
    }
  }

  void add_characters() {
    std::int32_t next = pieces_.size();
    for (std::int32_t id = 0; id < pieces_.size(); ++id) {
      if (!symbols_.contains(id)) continue;
      const std::string text(symbols_.token(id));
      char32_t previous = 0;
      for (std::size_t at = 0; at < text.size();) {
        const unicode::Character c = unicode::decode(text.data() + at);
        const std::string_view own = std::string_view(text).substr(at, static_cast<std::size_t>(c.length));
        if (symbols_.find(own) == none) symbols_.add(own, next++);
        if (at > 0) joined_.set(static_cast<std::int32_t>(previous), static_cast<std::int32_t>(c.code), {});
        previous = c.code;
        at += own.size();
      }
    }
  }

  /// Pieces of one score have one rank, so that position decides between them.
  std::vector<std::uint32_t> ranks() const {
    Ids order;
    for (std::int32_t id = 0; id < pieces_.size(); ++id) {
      if (symbols_.contains(id)) order.push_back(id);
    }
    const auto is_better = [this](std::int32_t a, std::int32_t b) { return pieces_.score(a) > pieces_.score(b); };
    std::sort(order.begin(), order.end(), is_better);
    std::vector<std::uint32_t> ranks(static_cast<std::size_t>(pieces_.size()));
    std::uint32_t rank = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i > 0 && is_better(order[i - 1], order[i])) ++rank;
      ranks[static_cast<std::size_t>(order[i])] = rank;
    }
    return ranks;
  }

  void add_merges() {
    const std::vector<std::uint32_t> rank = ranks();
    for (std::int32_t id = 0; id < pieces_.size(); ++id) {
      if (!symbols_.contains(id)) continue;
      const std::string_view text = symbols_.token(id);
      for (std::size_t cut = 1; cut < text.size(); ++cut) {
        if (!unicode::starts_character(text[cut])) continue;
        const std::int32_t left = symbols_.find(text.substr(0, cut)), right = symbols_.find(text.substr(cut));
        if (left != none && right != none) merges_.set(left, right, {rank[static_cast<std::size_t>(id)], id});
      }
    }
  }

  std::int32_t find_character(char32_t code, std::string_view text) const {
    return code < dense_characters ? characters_[code] : symbols_.find(text);
  }

  void segment_between(std::string_view text, std::size_t start, WordCache& cache, Splits& splits, Ids& ids) const {
    std::size_t begin = 0;
    char32_t previous = 0;
    bool previous_known = false;
    for (std::size_t at = 0; at < text.size();) {
      const unicode::Character c = unicode::decode(text.data() + at);
      const std::size_t end = at + static_cast<std::size_t>(c.length);
      const std::string_view own = text.substr(at, end - at);
      const bool is_known = find_character(c.code, own) != none;
      const bool is_apart =
          !is_known || !previous_known ||
          joined_.find(static_cast<std::int32_t>(previous), static_cast<std::int32_t>(c.code)) == nullptr;
      if (is_apart && at > begin) {
        segment_part(text.substr(begin, at - begin), start, cache, splits, ids);
        begin = at;
      }
      if (!is_known) {
        pieces_.append(own, pieces_.unk_id(), start, ids);
        begin = end;
      }
      previous = c.code;
      previous_known = is_known;
      at = end;
    }
    if (begin < text.size()) segment_part(text.substr(begin), start, cache, splits, ids);
  }

  void segment_part(std::string_view part, std::size_t start, WordCache& cache, Splits& splits, Ids& ids) const {
    const std::uint64_t hash = hash_text(part);
    const bool may_remember = !has_unused_ && part.size() <= WordCache::longest_word;
    const std::size_t before = ids.size();
    if (may_remember && cache.find(part, hash, ids)) {
      drop_repeated_unknown(before, start, ids);
      return;
    }
    cache.symbols.clear();
    for (std::size_t at = 0; at < part.size();) {
      const unicode::Character c = unicode::decode(part.data() + at);
      add_symbol(cache.symbols, find_character(c.code, part.substr(at, static_cast<std::size_t>(c.length))));
      at += static_cast<std::size_t>(c.length);
    }
    if (has_unused_) {
      merge_symbols(merges_, cache, [&](std::int32_t left, std::int32_t right, std::int32_t id) {
        if (is_unused(id)) splits.insert_or_assign(id, std::pair(left, right));
      });
    } else {
      merge_symbols(merges_, cache, [](std::int32_t, std::int32_t, std::int32_t) {});
    }
    for (const WordCache::Symbol& symbol : cache.symbols) {
      if (symbol.is_alive) append(symbol.id, splits, before, ids);
    }
    if (may_remember) cache.add(part, hash, std::span(ids).subspan(before));
    drop_repeated_unknown(before, start, ids);
  }

  /// What a part begins with may continue the unknown text before it.
  void drop_repeated_unknown(std::size_t before, std::size_t start, Ids& ids) const {
    const bool repeats =
        before > start && before < ids.size() && ids[before] == pieces_.unk_id() && ids[before - 1] == pieces_.unk_id();
    if (repeats) ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(before));
  }

  bool is_unused(std::int32_t id) const {
    return pieces_.contains(id) && pieces_.type(id) == SentencePieces::Type::unused;
  }

  /// A piece that is not to be used gives way to the two it was made of.
  void append(std::int32_t symbol, const Splits& splits, std::size_t start, Ids& ids) const {
    const std::int32_t id = pieces_.contains(symbol) ? symbol : pieces_.unk_id();
    const auto split = is_unused(id) ? splits.find(id) : splits.end();
    if (split == splits.end()) {
      pieces_.append(symbols_.token(symbol), id, start, ids);
      return;
    }
    append(split->second.first, splits, start, ids);
    append(split->second.second, splits, start, ids);
  }

  const SentencePieces& pieces_;
  Vocabulary symbols_;
  Ids characters_;  // symbols of the first code points
  PairTable merges_, joined_;
  bool has_unused_ = false;
};

}  // namespace

std::unique_ptr<SentencePieceSegmenter> make_bpe_segmenter(const SentencePieces& pieces) {
  return std::make_unique<BpeSegmenter>(pieces);
}

}  // namespace heddle
