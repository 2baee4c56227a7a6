#include "data/tokenizer/sentencepiece_tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/tokenizer/replace.h"
#include "data/tokenizer/unicode.h"

namespace heddle {
namespace {

using Ids = std::vector<std::int32_t>;
using Type = SentencePieces::Type;
constexpr auto none = Vocabulary::none;
constexpr std::string_view blank = "\xE2\x96\x81";  // U+2581, a visible space

/// Python's str.isspace.
bool is_python_space(char32_t c) { return (c >= 0x1C && c <= 0x1F) || unicode::classes().is(c, unicode::space); }

void strip_left(std::string& text) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    const unicode::Character c = unicode::decode(text.data() + begin);
    if (!is_python_space(c.code)) break;
    begin += static_cast<std::size_t>(c.length);
  }
  text.erase(0, begin);
}

void strip_right(std::string& text) {
  while (!text.empty()) {
    const unicode::Character c = unicode::decode_before(text, text.size());
    if (!is_python_space(c.code)) break;
    text.resize(text.size() - static_cast<std::size_t>(c.length));
  }
}

/// Each byte that is not part of a character becomes U+FFFD.
void append_bytes(std::string& text, std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t sound = std::min(unicode::find_invalid(bytes), bytes.size());
    text += bytes.substr(0, sound);
    bytes.remove_prefix(sound);
    if (bytes.empty()) break;
    text += "\xEF\xBF\xBD";
    bytes.remove_prefix(1);
  }
}

/// The piece of a name that is a control piece.
std::optional<std::int32_t> find_control(const SentencePieces& pieces, const std::string& name) {
  const std::int32_t id = pieces.find(name);
  if (id == none || pieces.type(id) != Type::control) return std::nullopt;
  return id;
}

std::unique_ptr<SentencePieceSegmenter> make_segmenter(const SentencePieceModel& model, const SentencePieces& pieces) {
  return model.algorithm == SentencePieceModel::Algorithm::bpe ? make_bpe_segmenter(pieces)
                                                               : make_unigram_segmenter(pieces);
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(const SentencePieceModel& model, const TokenizerSettings& settings,
                                               const std::string& file, std::string fingerprint)
    : file_(file),
      pieces_(model, file),
      normalizer_(model.normalizer, model.treat_whitespace_as_suffix, &pieces_, file + ": normalizer_spec"),
      segmenter_(make_segmenter(model, pieces_)),
      drops_first_blank_(model.normalizer.add_dummy_prefix || model.normalizer.remove_extra_whitespaces),
      drops_all_blanks_(model.normalizer.remove_extra_whitespaces),
      is_folder_(settings.is_folder),
      legacy_(settings.legacy),
      add_prefix_space_(settings.add_prefix_space),
      unk_surface_(model.unk_surface),
      unk_token_(pieces_.text(pieces_.unk_id())),
      vocab_size_(pieces_.size()),
      fingerprint_(std::move(fingerprint)) {
  if (model.denormalizer && !model.denormalizer->charsmap.empty()) {
    denormalizer_.emplace(*model.denormalizer, false, nullptr, file + ": denormalizer_spec");
  }
  special_tokens_.bos_id = find_control(pieces_, model.bos_piece);
  special_tokens_.eos_id = find_control(pieces_, model.eos_piece);
  if (!is_folder_) return;
  for (const AddedToken& token : settings.added) add(token);
  add_special_tokens(model, settings);
}

/// Special tokens that no other file has added: those of the model have their ids, others come after all.
void SentencePieceTokenizer::add_special_tokens(const SentencePieceModel& model, const TokenizerSettings& settings) {
  std::vector<AddedToken> tokens = settings.ends;
  for (const auto* list : {&settings.special, &settings.more_special}) {
    tokens.insert(tokens.end(), list->begin(), list->end());
  }
  const auto add_own = [&tokens](bool is_named, std::string_view name) {
    AddedToken token;
    token.content = name;
    token.special = true;
    if (!is_named) tokens.push_back(std::move(token));
  };
  if (special_tokens_.bos_id) add_own(settings.names_bos, model.bos_piece);
  if (special_tokens_.eos_id) add_own(settings.names_eos, model.eos_piece);
  add_own(settings.names_unk, pieces_.text(pieces_.unk_id()));
  for (AddedToken& token : tokens) {
    named_.insert(token.content);
    if (const auto id = token_to_id(token.content)) {
      const auto known = added_.find(*id);
      if (known != added_.end()) {
        known->second.special = true;
        continue;
      }
      token.id = *id;
    } else {
      token.id = vocab_size_;
    }
    add(std::move(token));
  }
}

void SentencePieceTokenizer::add(AddedToken token) {
  added_texts_.add(token.content, token.id);
  vocab_size_ = std::max(vocab_size_, token.id + 1);
  fingerprint_ += fmt::format(":{}={}{}{}{}", token.id, Json(token.content).dump(), token.single_word ? "w" : "",
                              token.lstrip ? "l" : "", token.rstrip ? "r" : "");
  const std::int32_t id = token.id, piece = pieces_.find(token.content);
  if (piece != none && piece != id) renamed_[piece] = id;
  added_[id] = std::move(token);
}

/// The longest added token that begins there.
const AddedToken* SentencePieceTokenizer::find_token(std::string_view text, std::size_t begin) const {
  std::int32_t node = ByteTrie::root, id = none;
  for (std::size_t at = begin; at < text.size(); ++at) {
    node = added_texts_.step(node, text[at]);
    if (node == ByteTrie::none) break;
    if (added_texts_.value(node) != ByteTrie::none) id = added_texts_.value(node);
  }
  return id == none ? nullptr : &added_.at(id);
}

/// Flags act on the neighbours as Hugging Face's slow tokenizers have it: one that is to stand alone is text when a
/// neighbour does not touch it with a blank.
std::vector<SentencePieceTokenizer::Part> SentencePieceTokenizer::cut(std::string_view text) const {
  std::vector<Part> parts;
  std::size_t begin = 0;
  const auto add_text = [&](std::size_t end) {
    if (end > begin) parts.push_back({std::string(text.substr(begin, end - begin)), nullptr});
  };
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = find_token(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    add_text(at);
    parts.push_back({token->content, token});
    begin = at += token->content.size();
  }
  add_text(text.size());

  for (std::size_t i = 0; i < parts.size(); ++i) {
    const AddedToken* token = parts[i].token;
    if (token == nullptr) continue;
    std::string* left = i > 0 ? &parts[i - 1].text : nullptr;
    std::string* right = i + 1 < parts.size() ? &parts[i + 1].text : nullptr;
    const bool touches_left = left != nullptr && !left->empty() && !left->ends_with(' ');
    const bool touches_right = right != nullptr && !right->empty() && !right->starts_with(' ');
    if (token->rstrip && right != nullptr) strip_left(*right);
    if (token->lstrip && left != nullptr) strip_right(*left);
    if (token->single_word && touches_left) {
      *left += token->content;
      parts[i] = {};
      parts[i - 1].token = nullptr;
    } else if (token->single_word && touches_right) {
      *right = token->content + *right;
      parts[i] = {};
      parts[i + 1].token = nullptr;
    }
  }
  std::erase_if(parts, [](const Part& part) { return part.text.empty(); });
  for (Part& part : parts) {  // one that was joined to nothing but blanks
    const AddedToken* token = find_token(part.text, 0);
    if (token != nullptr && token->content == part.text) part.token = token;
  }
  return parts;
}

std::vector<std::int32_t> SentencePieceTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  const std::size_t invalid = unicode::find_invalid(text);
  if (invalid != std::string_view::npos) fail("the text is not UTF-8 at byte {}", invalid);
  Ids ids;
  ids.reserve(text.size() / 4 + 8);
  if (add_special_tokens && bos_id() && add_bos_token().value_or(true)) ids.push_back(*bos_id());
  encode_parts(text, ids);
  if (add_special_tokens && eos_id() && add_eos_token().value_or(false)) ids.push_back(*eos_id());
  return ids;
}

void SentencePieceTokenizer::encode_parts(std::string_view text, Ids& ids) const {
  const WordCachePool::Lease cache(caches_);
  if (!is_folder_) {
    encode_text(text, true, *cache, ids);
    return;
  }
  std::string prefixed;
  if (!legacy_ && !text.empty()) {
    prefixed = (add_prefix_space_ ? std::string(blank) : std::string()) + replace_all(text, blank, " ");
    text = prefixed;
  }
  const std::vector<Part> parts = cut(text);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t before = ids.size();
    if (parts[i].token != nullptr) {
      ids.push_back(parts[i].token->id);
    } else if (legacy_) {
      encode_text(parts[i].text, true, *cache, ids);
    } else {
      encode_without_prefix(parts[i].text, *cache, ids);
      // A blank alone before a named special token is left out.
      const bool is_prefix = i == 0 && ids.size() == before + 1 && is_blank(ids.back(), parts[i].text);
      if (is_prefix && parts.size() > 1 && named_.contains(parts[1].text)) ids.resize(before);
    }
  }
}

/// Whether the one piece of a text is a blank, known to the model or not.
bool SentencePieceTokenizer::is_blank(std::int32_t id, std::string_view text) const {
  return pieces_.contains(id) && (id == pieces_.unk_id() ? text == blank : pieces_.text(id) == blank);
}

void SentencePieceTokenizer::encode_text(std::string_view text, bool add_blank, WordCache& cache, Ids& ids) const {
  const std::size_t before = ids.size();
  segmenter_->segment(normalizer_.apply(text, add_blank), cache, ids);
  for (std::size_t i = before; !renamed_.empty() && i < ids.size(); ++i) {
    const auto renamed = renamed_.find(ids[i]);
    if (renamed != renamed_.end()) ids[i] = renamed->second;
  }
}

/// A blank at the beginning is kept from normalization by the unknown token before it, which is then cut off.
void SentencePieceTokenizer::encode_without_prefix(std::string_view text, WordCache& cache, Ids& ids) const {
  Ids guarded;
  if (!text.starts_with(blank) && !text.starts_with(' ')) {
    encode_text(text, false, cache, ids);
    return;
  }
  Ids guard;
  encode_text(unk_token_, false, cache, guard);
  encode_text(unk_token_ + std::string(text), false, cache, guarded);
  const std::size_t cut = guarded.size() >= guard.size() ? guard.size() : 0;
  ids.insert(ids.end(), guarded.begin() + static_cast<std::ptrdiff_t>(cut), guarded.end());
}

std::string SentencePieceTokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  std::string text, bytes;
  bool at_begin = true, blank_dropped = false;
  for (const std::int32_t id : ids) {
    const auto added = added_.find(id);
    const bool is_added = added != added_.end();
    if (!is_added && !pieces_.contains(id)) continue;
    if (!is_added && pieces_.type(id) == Type::byte) {
      bytes.push_back(static_cast<char>(pieces_.byte(id)));
      continue;
    }
    append_bytes(text, std::exchange(bytes, {}));
    if (blank_dropped || !text.empty()) at_begin = false;
    blank_dropped = false;
    const bool is_control = !is_added && pieces_.type(id) == Type::control;
    if (is_added || is_control) {
      const bool is_special = is_control || added->second.special;
      if (!is_special || !skip_special_tokens) text += id_to_token(id);
    } else if (id == pieces_.unk_id()) {
      text += unk_surface_;
    } else {
      std::string_view piece = pieces_.text(id);
      if (at_begin && drops_first_blank_ && piece.starts_with(blank)) {
        piece.remove_prefix(blank.size());
        blank_dropped = !drops_all_blanks_;
      }
      text += replace_all(piece, blank, " ");
    }
  }
  append_bytes(text, bytes);
  return denormalizer_ ? denormalizer_->apply(text) : text;
}

std::optional<std::int32_t> SentencePieceTokenizer::token_to_id(std::string_view token) const {
  const AddedToken* added = token.empty() ? nullptr : find_token(token, 0);
  if (added != nullptr && added->content == token) return added->id;
  const std::int32_t id = pieces_.find(token);
  if (id == none) return std::nullopt;
  return id;
}

std::string SentencePieceTokenizer::id_to_token(std::int32_t id) const {
  const auto added = added_.find(id);
  if (added != added_.end()) return added->second.content;
  return pieces_.contains(id) ? std::string(pieces_.text(id)) : std::string();
}

std::string SentencePieceTokenizer::fingerprint() const {
  const auto show = [](const std::optional<std::int32_t>& id) { return id ? std::to_string(*id) : std::string("-"); };
  return fmt::format("{}:folder={}:legacy={}:prefix={}:bos={}:eos={}:add={},{}", fingerprint_, is_folder_, legacy_,
                     add_prefix_space_, show(bos_id()), show(eos_id()), add_bos_token().value_or(true),
                     add_eos_token().value_or(false));
}

}  // namespace heddle
