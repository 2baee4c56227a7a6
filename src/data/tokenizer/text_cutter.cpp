#include "data/tokenizer/text_cutter.h"

#include <algorithm>
#include <array>

#include "data/tokenizer/bpe.h"
#include "data/tokenizer/metaspace.h"
#include "data/tokenizer/pre_tokenizers.h"
#include "data/tokenizer/unicode.h"

namespace heddle {
namespace {

template <std::size_t size>
bool is_one_of(const std::string& type, const std::array<std::string_view, size>& types) {
  return std::find(types.begin(), types.end(), type) != types.end();
}

void replace_all(std::string& text, std::string_view what, std::string_view content) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += content.size()) {
    text.replace(at, what.size(), content);
  }
}

bool is_letter(char32_t code) { return unicode::classes().is(code, unicode::letter); }
bool is_space(char32_t code) { return unicode::classes().is(code, unicode::space); }
bool is_plain_ascii(char byte) { return (byte >= ' ' && byte <= '~') || byte == '\n' || byte == '\t'; }

}  // namespace

TextCutter::TextCutter(const JsonEntry& document, const Normalizer* normalizer, const TokenModel& model,
                       const AddedTokens& added)
    : normalizer_(normalizer), model_(model), added_(added) {
  Spaces spaces;
  const auto normalizer_entry = document.find("normalizer");
  if (normalizer_entry && !read_normalizer(*normalizer_entry, spaces)) return;
  // The prefix of the second part must stand for the space that is left out.
  if (!spaces.prefix.empty() && spaces.prefix != spaces.space) return;
  drops_space_ = !spaces.prefix.empty();
  read_pre_tokenizer(document.find("pre_tokenizer"), spaces);
  if (drops_space_) cuts_lines_ = false;

  constexpr std::size_t kNeighbours = 16;  // what single_word, lstrip and rstrip look at, and the cut itself
  std::size_t longest = 0;
  const auto tokens = document.find("added_tokens");
  for (const JsonEntry& token : tokens ? tokens->elements() : std::vector<JsonEntry>{}) {
    const std::string content = token.string("content");
    const std::size_t normalized = normalizer_ != nullptr ? normalizer_->apply(content).size() : 0;
    longest = std::max({longest, content.size(), normalized});
  }
  reach_ = longest + kNeighbours;
}

/// Normalizers that change each character by itself, or that compose characters, which they do with neither a space
/// nor a letter behind a line end.
bool TextCutter::read_normalizer(const JsonEntry& entry, Spaces& spaces) {
  constexpr std::array<std::string_view, 6> kForms = {"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"};
  const std::string type = entry.string("type");
  if (type == "Sequence") {
    const auto parts = entry.at("normalizers").elements();
    return std::all_of(parts.begin(), parts.end(),
                       [&](const JsonEntry& part) { return read_normalizer(part, spaces); });
  }
  if (is_one_of(type, kForms)) {
    spaces.changes_letters = true;
    return true;
  }
  if (type == "BertNormalizer") {
    spaces.changes_letters = spaces.changes_lines = true;
    return true;
  }
  if (type == "Prepend") {
    spaces.prefix = entry.string("prepend") + spaces.prefix;
    return true;
  }
  if (type == "Precompiled") {  // works on grapheme clusters: between ASCII letters and a space there is always a bound
    const auto rules = Normalizer::read(entry);
    spaces.prefix = rules->apply(spaces.prefix);
    spaces.space = rules->apply(spaces.space);
    spaces.changes_letters = spaces.changes_lines = needs_ascii_ = true;
    return true;
  }
  if (type == "Replace" && entry.at("pattern").optional_string("Regex") == " {2,}") {  // a single space stays
    needs_ascii_ = true;
    return spaces.prefix.empty() && spaces.space == " ";
  }
  if (type == "Replace") {
    const auto what = entry.at("pattern").optional_string("String");
    if (!what || !unicode::is_one_character(*what)) return false;
    const char32_t code = unicode::decode(what->data()).code;
    if (is_letter(code) || code == U'\n') return false;
    replace_all(spaces.prefix, *what, entry.string("content"));
    replace_all(spaces.space, *what, entry.string("content"));
    return true;
  }
  return false;
}

void TextCutter::read_pre_tokenizer(const std::optional<JsonEntry>& entry, const Spaces& spaces) {
  if (!entry) return use_merges(spaces.space, spaces);
  if (const auto words = find_byte_level_words(*entry)) {
    const bool is_known =
        words->rule == WordRule::gpt2 || words->rule == WordRule::llama3 || words->rule == WordRule::qwen2;
    cuts_spaces_ = is_known && spaces.space == " ";
    cuts_lines_ = cuts_spaces_ && !words->add_prefix_space && !spaces.changes_lines;
    return;
  }
  const std::string type = entry->string("type");
  if (type == "Metaspace") {
    const Metaspace options(*entry);
    if (spaces.space != " " && spaces.space != options.replacement) return;
    if (!options.split) return use_merges(options.replacement, spaces);
    cuts_spaces_ = true;  // the second part begins with a space, so that nothing is put before it
    return;
  }
  if (type == "Split") {  // of spaces, none of which is left
    const auto what = entry->at("pattern").optional_string("String");
    if (entry->at("invert").boolean()) return;
    if (what == " " && spaces.space.find(' ') == std::string::npos) use_merges(spaces.space, spaces);
    return;
  }
  constexpr std::array<std::string_view, 3> kWordKinds = {"Whitespace", "WhitespaceSplit", "BertPreTokenizer"};
  cuts_spaces_ = is_one_of(type, kWordKinds) && spaces.space == " ";
}

/// The text is one word: only what the model's merges cannot join may be cut.
void TextCutter::use_merges(std::string_view mark, const Spaces& spaces) {
  merges_ = dynamic_cast<const Bpe*>(&model_);
  if (merges_ == nullptr || mark.empty() || spaces.changes_letters) return;
  mark_ = unicode::decode(mark.data()).code;
  cuts_spaces_ = true;
}

std::optional<Tokenizer::Cut> TextCutter::find(std::string_view text, std::size_t from) const {
  if (!cuts_spaces_) return std::nullopt;
  const std::string_view candidates = cuts_lines_ ? " \n" : " ";
  // What may follow the text must not matter.
  for (std::size_t at = std::max<std::size_t>(from, reach_); at + reach_ < text.size(); ++at) {
    at = text.find_first_of(candidates, at);
    if (at == std::string_view::npos || at + reach_ >= text.size()) break;
    const bool is_line = text[at] == '\n';
    if (!(is_line ? line_is_cut(text, at) : space_is_cut(text, at)) || !is_far_from_added_tokens(text, at)) continue;
    return is_line ? Tokenizer::Cut{at + 1, at + 1} : Tokenizer::Cut{at, at + (drops_space_ ? 1 : 0)};
  }
  return std::nullopt;
}

bool TextCutter::space_is_cut(std::string_view text, std::size_t at) const {
  const char32_t before = unicode::decode_before(text, at).code;
  const auto is_ascii_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (needs_ascii_ && !(is_ascii_letter(text[at - 1]) && is_ascii_letter(text[at + 1]))) return false;
  return is_letter(before) && (merges_ == nullptr || merges_->are_apart(before, mark_));
}

bool TextCutter::line_is_cut(std::string_view text, std::size_t at) const {
  return !is_space(unicode::decode_before(text, at).code) && is_letter(unicode::decode(text.data() + at + 1).code);
}

/// No added token begins or ends near: none takes white space at the cut with it, or asks what stands beside it. In
/// normalized text such a token may stand for any number of characters, but for ASCII.
bool TextCutter::is_far_from_added_tokens(std::string_view text, std::size_t at) const {
  std::size_t begin = at - reach_, end = at + reach_;
  while (begin < at && !unicode::starts_character(text[begin])) ++begin;
  while (end > at && !unicode::starts_character(text[end])) --end;
  const std::string_view around = text.substr(begin, end - begin);
  const auto has_token = [](const std::vector<AddedSpan>& spans) {
    return std::any_of(spans.begin(), spans.end(), [](const AddedSpan& span) { return span.id != AddedTokens::none; });
  };
  if (has_token(added_.find_raw(around))) return false;
  if (!added_.has_normalized()) return true;
  if (normalizer_ == nullptr) return !has_token(added_.find_normalized(around));
  return std::all_of(around.begin(), around.end(), is_plain_ascii) &&
         !has_token(added_.find_normalized(normalizer_->apply(around)));
}

}  // namespace heddle
