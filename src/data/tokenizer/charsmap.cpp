#include "data/tokenizer/charsmap.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace heddle {
namespace {

/// Units of a Darts double array (https://github.com/s-yata/darts-clone).
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFF; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FF; }
std::uint32_t offset_of(std::uint32_t unit) { return unit >> 10 << ((unit & 1U << 9) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view bytes, const std::string& where) {
  std::uint32_t trie_bytes = 0;
  if (bytes.size() >= sizeof trie_bytes) std::memcpy(&trie_bytes, bytes.data(), sizeof trie_bytes);
  if (bytes.size() < sizeof trie_bytes || trie_bytes == 0 || trie_bytes % 4 != 0 ||
      trie_bytes > bytes.size() - sizeof trie_bytes) {
    fail("{}: its {} bytes hold no trie", where, bytes.size());
  }
  units_.resize(trie_bytes / 4);
  std::memcpy(units_.data(), bytes.data() + sizeof trie_bytes, trie_bytes);
  replacements_ = bytes.substr(sizeof trie_bytes + trie_bytes);
  if (unicode::find_invalid(replacements_) != std::string::npos) fail("{}: the replacements are not UTF-8", where);
}

std::optional<Charsmap::Rule> Charsmap::find(std::string_view text, bool first) const {
  std::optional<Rule> found;
  std::size_t node = offset_of(units_[0]);
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto label = static_cast<std::uint32_t>(static_cast<unsigned char>(text[at]));
    node ^= label;
    if (label == 0 || node >= units_.size() || label_of(units_[node]) != label) break;
    const bool is_rule = has_leaf(units_[node]);
    node ^= offset_of(units_[node]);
    if (node >= units_.size()) break;
    if (!is_rule) continue;
    const auto by = replacement(value_of(units_[node]));
    if (by) found = {at + 1, *by};
    if (first) break;
  }
  return found;
}

std::optional<std::string_view> Charsmap::replacement(std::size_t begin) const {
  if (begin >= replacements_.size() || !unicode::starts_character(replacements_[begin])) return std::nullopt;
  const std::size_t end = std::min(replacements_.find('\0', begin), replacements_.size());
  return std::string_view(replacements_).substr(begin, end - begin);
}

}  // namespace heddle
