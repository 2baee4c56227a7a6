#include "data/row_encoder.h"

#include <algorithm>

#include "base/error.h"

namespace heddle {

RowEncoder::RowEncoder(const Tokenizer& tokenizer, std::optional<bool> add_bos, std::optional<bool> add_eos)
    : tokenizer_(&tokenizer), bos_(tokenizer.bos_id()), eos_(tokenizer.eos_id()) {
  if (add_bos.value_or(false) && !bos_) fail("add_bos is true, but the tokenizer has no beginning-of-text token");
  if (add_eos.value_or(false) && !eos_) fail("add_eos is true, but the tokenizer has no end-of-text token");

  // A post-processor puts fixed ids around those of the text: one text shows which.
  const auto plain = tokenizer.encode("a", false), full = tokenizer.encode("a", true);
  const auto text = std::search(full.begin(), full.end(), plain.begin(), plain.end());
  if (text == full.end() && !full.empty()) {
    fail("the tokenizer gives other ids for a text when it adds special tokens; expected the same ids between them");
  }
  leading_.assign(full.begin(), text);
  trailing_.assign(text + (full.empty() ? 0 : static_cast<std::ptrdiff_t>(plain.size())), full.end());

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

std::vector<std::int32_t> RowEncoder::encode(std::string_view text) const {
  std::vector<std::int32_t> ids = tokenizer_->encode(text, false);
  const bool has_bos = bos_ && !ids.empty() && ids.front() == *bos_;
  if (!leading_.empty() && !(has_bos && leading_.back() == *bos_)) {
    ids.insert(ids.begin(), leading_.begin(), leading_.end());
  }
  const bool has_eos = eos_ && !ids.empty() && ids.back() == *eos_;
  if (!trailing_.empty() && !(has_eos && trailing_.front() == *eos_)) {
    ids.insert(ids.end(), trailing_.begin(), trailing_.end());
  }
  return ids;
}

}  // namespace heddle
