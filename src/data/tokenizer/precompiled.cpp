#include "data/tokenizer/precompiled.h"

#include <utf8proc.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "base/error.h"

namespace heddle {
namespace {

/// Units of a Darts double array (https://github.com/s-yata/darts-clone).
bool has_leaf(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFF; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FF; }
std::uint32_t offset_of(std::uint32_t unit) { return unit >> 10 << ((unit & 1U << 9) >> 6); }

class Precompiled final : public Normalizer {
 public:
  Precompiled(std::string_view charsmap, const std::string& where) {
    std::uint32_t trie_bytes = 0;
    if (charsmap.size() >= sizeof trie_bytes) std::memcpy(&trie_bytes, charsmap.data(), sizeof trie_bytes);
    if (charsmap.size() < sizeof trie_bytes || trie_bytes == 0 || trie_bytes % 4 != 0 ||
        trie_bytes > charsmap.size() - sizeof trie_bytes) {
      fail("{}: its {} bytes hold no trie", where, charsmap.size());
    }
    units_.resize(trie_bytes / 4);
    std::memcpy(units_.data(), charsmap.data() + sizeof trie_bytes, trie_bytes);
    replacements_ = charsmap.substr(sizeof trie_bytes + trie_bytes);
    if (unicode::find_invalid(replacements_) != std::string::npos) fail("{}: the replacements are not UTF-8", where);
  }

  // Whole grapheme clusters of fewer than 6 bytes are looked up first, then the characters of a cluster.
  void apply(Piece& piece) const override {
    const std::string& text = piece.text;
    std::string out;
    out.reserve(text.size());
    std::size_t start_bytes = 0;
    const auto put = [&](std::string_view part, std::size_t at) {
      out += part;
      if (at < piece.start_bytes) start_bytes = out.size();
    };
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = end_of_grapheme(text, begin);
      const std::string_view grapheme = std::string_view(text).substr(begin, end - begin);
      const auto whole = grapheme.size() < 6 ? find(grapheme) : std::nullopt;
      if (whole) {
        put(*whole, begin);
        begin = end;
      }
      while (begin < end) {
        const auto length = static_cast<std::size_t>(unicode::decode(text.data() + begin).length);
        const std::string_view part = std::string_view(text).substr(begin, length);
        put(find(part).value_or(part), begin);
        begin += length;
      }
    }
    piece.rewrite(std::move(out), start_bytes);
  }

 private:
  static std::size_t end_of_grapheme(std::string_view text, std::size_t begin) {
    utf8proc_int32_t state = 0;
    unicode::Character last = unicode::decode(text.data() + begin);
    std::size_t end = begin + static_cast<std::size_t>(last.length);
    while (end < text.size()) {
      const unicode::Character next = unicode::decode(text.data() + end);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.code),
                                           static_cast<utf8proc_int32_t>(next.code), &state)) {
        break;
      }
      end += static_cast<std::size_t>(next.length);
      last = next;
    }
    return end;
  }

  /// The replacement of the shortest rule that `key` begins with.
  std::optional<std::string_view> find(std::string_view key) const {
    std::size_t node = offset_of(units_[0]);
    for (const char byte : key) {
      const auto label = static_cast<std::uint32_t>(static_cast<unsigned char>(byte));
      node ^= label;
      if (label == 0 || node >= units_.size() || label_of(units_[node]) != label) return std::nullopt;
      const bool is_rule = has_leaf(units_[node]);
      node ^= offset_of(units_[node]);
      if (node >= units_.size()) return std::nullopt;
      if (is_rule) return replacement(value_of(units_[node]));
    }
    return std::nullopt;
  }

  std::optional<std::string_view> replacement(std::size_t begin) const {
    if (begin >= replacements_.size()) return std::nullopt;
    const std::size_t end = std::min(replacements_.find('\0', begin), replacements_.size());
    return std::string_view(replacements_).substr(begin, end - begin);
  }

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

std::string decode_base64(const JsonEntry& entry) {
  const std::string text = entry.string();
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  std::size_t size = text.size();
  while (size > 0 && text[size - 1] == '=') --size;
  for (std::size_t i = 0; i < size; ++i) {
    static constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const std::size_t digit = digits.find(text[i]);
    if (digit == std::string_view::npos) entry.refuse("base64");
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes.push_back(static_cast<char>(bits >> count & 0xFF));
    }
  }
  return bytes;
}

}  // namespace

std::unique_ptr<Normalizer> make_precompiled_normalizer(std::string_view charsmap, const std::string& where) {
  return std::make_unique<Precompiled>(charsmap, where);
}

std::unique_ptr<Normalizer> read_precompiled_normalizer(const JsonEntry& entry) {
  const JsonEntry charsmap = entry.at("precompiled_charsmap");
  return make_precompiled_normalizer(decode_base64(charsmap), charsmap.where());
}

}  // namespace heddle
