#include "data/tokenizer/sentencepiece_normalizer.h"

#include "data/tokenizer/unicode.h"

namespace heddle {
namespace {

constexpr std::string_view visible_space = "\xE2\x96\x81", replacement_character = "\xEF\xBF\xBD";

}  // namespace

SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceModel::Normalization& spec, bool blank_after,
                                                 const SentencePieces* pieces, const std::string& where)
    : spec_(spec), blank_after_(blank_after), pieces_(pieces) {
  if (!spec.charsmap.empty()) charsmap_.emplace(spec.charsmap, where + ".precompiled_charsmap");
}

SentencePieceNormalizer::Part SentencePieceNormalizer::first_part(std::string_view text) const {
  if (pieces_ != nullptr) {
    const std::size_t length = pieces_->match_user_defined(text);
    if (length > 0) return {length, text.substr(0, length)};
  }
  if (charsmap_) {
    if (const auto rule = charsmap_->longest(text)) return {rule->length, rule->replacement};
  }
  if (!unicode::starts_character(text[0])) return {1, replacement_character};  // a rule took a part of a character
  const auto length = static_cast<std::size_t>(unicode::decode(text.data()).length);
  return {length, text.substr(0, length)};
}

std::string SentencePieceNormalizer::apply(std::string_view text, bool add_blank) const {
  const std::string_view space = spec_.escape_whitespaces ? visible_space : " ";
  const bool remove_extra = spec_.remove_extra_whitespaces;
  const bool wants_blank = spec_.add_dummy_prefix && add_blank;
  std::string out;
  while (remove_extra && !text.empty()) {
    const Part part = first_part(text);
    if (part.text != " ") break;
    text.remove_prefix(part.length);
  }
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2 + 3);
  if (wants_blank && !blank_after_) out += space;
  bool after_space = remove_extra;
  while (!text.empty()) {
    const Part part = first_part(text);
    std::string_view own = part.text;
    while (after_space && own.starts_with(' ')) own.remove_prefix(1);
    for (const char byte : own) {
      if (byte == ' ') {
        out += space;
      } else {
        out += byte;
      }
    }
    if (!own.empty()) after_space = own.ends_with(' ');
    after_space = after_space && remove_extra;
    text.remove_prefix(part.length);
  }
  while (remove_extra && out.ends_with(space)) out.resize(out.size() - space.size());
  if (wants_blank && blank_after_) out += space;
  return out;
}

}  // namespace heddle
