#include "data/token_alignment.h"

#include <algorithm>
#include <string>
#include <utility>

namespace heddle {

SpecialIds::SpecialIds(const Tokenizer& tokenizer)
    : tokenizer_(&tokenizer), known_(static_cast<std::size_t>(std::max(tokenizer.vocab_size(), 0))) {}

bool SpecialIds::contains(std::int32_t id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= known_.size()) return false;
  auto& known = known_[static_cast<std::size_t>(id)];
  Known found = known.load(std::memory_order_relaxed);
  if (found == Known::unknown) {
    const std::span one(&id, 1);
    const bool is_special = tokenizer_->decode(one, true).empty() && !tokenizer_->decode(one, false).empty();
    found = is_special ? Known::special : Known::plain;
    known.store(found, std::memory_order_relaxed);
  }
  return found == Known::special;
}

TokenAlignment::TokenAlignment(const SpecialIds& special, std::string_view text, std::span<const std::int32_t> ids)
    : special_(&special), text_(text), ids_(ids) {
  std::size_t at = 0;
  for (std::size_t token = 0; token < ids.size(); ++token) {
    if (!special.contains(ids[token])) continue;
    const std::string spelt = special.tokenizer().id_to_token(ids[token]);
    const std::size_t begin = spelt.empty() ? std::string_view::npos : text.find(spelt, at);
    if (begin == std::string_view::npos) continue;  // not a token of the text as it is spelt
    at = begin + spelt.size();
    anchors_.push_back({token, begin, at});
  }
}

std::optional<std::size_t> TokenAlignment::end_of_special(std::size_t byte) const {
  const auto found = std::lower_bound(anchors_.begin(), anchors_.end(), byte,
                                      [](const Anchor& anchor, std::size_t from) { return anchor.begin < from; });
  return found == anchors_.end() ? std::nullopt : std::optional(found->end);
}

std::pair<std::size_t, std::size_t> TokenAlignment::locate(std::size_t byte) const {
  if (byte >= text_.size()) return {ids_.size(), ids_.size()};
  const auto next = std::upper_bound(anchors_.begin(), anchors_.end(), byte,
                                     [](std::size_t end, const Anchor& anchor) { return end < anchor.end; });
  if (next != anchors_.end() && next->begin == byte) return {next->token, next->token};
  // The special token before goes along: a tokenizer may treat a text's start otherwise than what follows such a token.
  const Anchor before = next == anchors_.begin() ? Anchor{0, 0, 0} : *std::prev(next);
  if (before.end == byte && byte > 0) return {before.token + 1, before.token + 1};
  if (byte == before.begin) return {before.token, before.token};
  const auto alone = special_->tokenizer().encode(text_.substr(before.begin, byte - before.begin), false);
  const auto whole = ids_.subspan(before.token);
  const auto common = static_cast<std::size_t>(
      std::mismatch(alone.begin(), alone.end(), whole.begin(), whole.end()).first - alone.begin());
  const bool is_boundary = common == alone.size();
  const std::size_t first = before.token + common;
  return {first, std::min(is_boundary ? first : first + 1, ids_.size())};
}

}  // namespace heddle
