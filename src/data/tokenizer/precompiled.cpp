#include "data/tokenizer/precompiled.h"

#include <utf8proc.h>

#include <cstdint>
#include <optional>
#include <string>

#include "data/tokenizer/charsmap.h"

namespace heddle {
namespace {

class Precompiled final : public Normalizer {
 public:
  Precompiled(std::string_view charsmap, const std::string& where) : charsmap_(charsmap, where) {}

  // Whole grapheme clusters of fewer than 6 bytes are looked up first, then the characters of a cluster.
  void apply(Piece& piece) const override {
    Rewriting rewriting(piece);
    const std::string_view text = piece.text;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = end_of_grapheme(text, begin);
      const std::string_view grapheme = text.substr(begin, end - begin);
      const auto whole = grapheme.size() < 6 ? find(grapheme) : std::nullopt;
      if (whole) {
        rewriting.replace(grapheme, *whole);
        begin = end;
      }
      while (begin < end) {
        const auto length = static_cast<std::size_t>(unicode::decode(text.data() + begin).length);
        const std::string_view part = text.substr(begin, length);
        rewriting.replace(part, find(part).value_or(part));
        begin += length;
      }
    }
    piece.rewrite(std::move(rewriting.out), rewriting.start_bytes);
  }

 private:
  /// The new text, and how much of it stands for the input's first character. As in the reference each new character
  /// takes up an old one, and of those removed the ones at the very beginning are not counted: all moves to the front.
  struct Rewriting {
    explicit Rewriting(const Piece& old_piece) : piece(old_piece) { out.reserve(piece.text.size()); }

    void replace(std::string_view old_part, std::string_view new_part) {
      std::size_t left = unicode::count_characters(old_part);
      for (std::size_t at = 0; at < new_part.size();) {
        const auto length = static_cast<std::size_t>(unicode::decode(new_part.data() + at).length);
        out += new_part.substr(at, length);
        at += length;
        const std::size_t stands_for = left > 0 || taken == 0 ? taken : taken - 1;
        if (stands_for < piece.start_bytes) start_bytes = out.size();
        if (left > 0) take();
        if (left > 0) --left;
      }
      for (; left > 0 && !out.empty(); --left) take();
    }
    void take() { taken += static_cast<std::size_t>(unicode::decode(piece.text.data() + taken).length); }

    const Piece& piece;
    std::string out;
    std::size_t start_bytes = 0, taken = 0;  // bytes of the old text
  };

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

  std::optional<std::string_view> find(std::string_view key) const {
    const auto rule = charsmap_.shortest(key);
    if (!rule) return std::nullopt;
    return rule->replacement;
  }

  Charsmap charsmap_;
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

std::unique_ptr<Normalizer> read_precompiled_normalizer(const JsonEntry& entry) {
  const JsonEntry charsmap = entry.at("precompiled_charsmap");
  return std::make_unique<Precompiled>(decode_base64(charsmap), charsmap.where());
}

}  // namespace heddle
