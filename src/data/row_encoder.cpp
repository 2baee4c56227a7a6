#include "data/row_encoder.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace heddle {

SurroundingIds find_surrounding_ids(const Tokenizer& tokenizer) {
  // A post-processor puts fixed ids around those of the text: one text shows which.
  const auto plain = tokenizer.encode("a", false), full = tokenizer.encode("a", true);
  const auto text = std::search(full.begin(), full.end(), plain.begin(), plain.end());
  if (text == full.end() && !full.empty()) {
    fail("the tokenizer gives other ids for a text when it adds special tokens; expected the same ids between them");
  }
  return {{full.begin(), text}, {text + (full.empty() ? 0 : static_cast<std::ptrdiff_t>(plain.size())), full.end()}};
}

RowEncoder::RowEncoder(const Tokenizer& tokenizer, std::optional<bool> add_bos, std::optional<bool> add_eos)
    : tokenizer_(&tokenizer),
      bos_(tokenizer.bos_id()),
      eos_(tokenizer.eos_id()),
      asks_for_bos_(add_bos.value_or(false)) {
  if (add_bos.value_or(false) && !bos_) fail("add_bos is true, but the tokenizer has no beginning-of-text token");
  if (add_eos.value_or(false) && !eos_) fail("add_eos is true, but the tokenizer has no end-of-text token");
  auto [leading, trailing] = find_surrounding_ids(tokenizer);
  leading_ = std::move(leading);
  trailing_ = std::move(trailing);

  const auto starts_with_bos = [&] { return bos_ && !leading_.empty() && leading_.front() == *bos_; };
  const auto ends_with_eos = [&] { return eos_ && !trailing_.empty() && trailing_.back() == *eos_; };
  const bool want_bos = add_bos.value_or(tokenizer.add_bos_token().value_or(starts_with_bos()));
  if (bos_ && want_bos != starts_with_bos()) {
    if (want_bos) {
      leading_.insert(leading_.begin(), *bos_);
    } else {
      leading_.erase(leading_.begin());
    }
  }
  if (add_eos.value_or(eos_.has_value()) != ends_with_eos()) {
    if (ends_with_eos()) {
      trailing_.pop_back();
    } else {
      trailing_.push_back(*eos_);
    }
  }
}

bool RowEncoder::wants_leading(std::optional<std::int32_t> first) const {
  const bool has_bos = bos_ && first == *bos_;
  return !leading_.empty() && !(has_bos && leading_.back() == *bos_);
}

bool RowEncoder::wants_trailing(std::optional<std::int32_t> last) const {
  const bool has_eos = eos_ && last == *eos_;
  return !trailing_.empty() && !(has_eos && trailing_.front() == *eos_);
}

std::vector<std::int32_t> RowEncoder::encode(std::string_view text) const {
  std::vector<std::int32_t> ids = encode_text(*tokenizer_, text);
  surround(ids);
  return ids;
}

std::size_t RowEncoder::surround(std::vector<std::int32_t>& ids) const {
  const bool has_leading = wants_leading(ids.empty() ? std::nullopt : std::optional(ids.front()));
  if (has_leading) ids.insert(ids.begin(), leading_.begin(), leading_.end());
  if (wants_trailing(ids.empty() ? std::nullopt : std::optional(ids.back()))) {
    ids.insert(ids.end(), trailing_.begin(), trailing_.end());
  }
  return has_leading ? leading_.size() : 0;
}

bool RowEncoder::must_add_bos(std::span<const std::int32_t> ids) const {
  return asks_for_bos_ && (ids.empty() || ids.front() != *bos_);
}

void RowEncoder::encode(const ReadText& read, const UseIds& use) const {
  bool has_started = false;
  std::optional<std::int32_t> last;
  const auto put = [&](std::span<const std::int32_t> ids) {
    if (ids.empty()) return;
    last = ids.back();
    use(ids);
  };
  encode_text(*tokenizer_, read, [&](std::span<const std::int32_t> ids) {
    if (ids.empty()) return;
    if (!has_started && wants_leading(ids.front())) put(leading_);
    has_started = true;
    put(ids);
  });
  if (!has_started && wants_leading(std::nullopt)) put(leading_);
  if (wants_trailing(last)) put(trailing_);
}

}  // namespace heddle
