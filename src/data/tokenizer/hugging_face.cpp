#include "data/tokenizer/hugging_face.h"

#include <utility>

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace heddle {

HuggingFaceTokenizer::HuggingFaceTokenizer(const JsonEntry& entry, std::string fingerprint,
                                           const AddedTokenLists& lists)
    : fingerprint_(std::move(fingerprint)) {
  entry.require_object();
  if (const auto version = entry.find("version"); version && version->string() != "1.0") version->refuse("1.0");
  if (const auto part = entry.find("normalizer")) normalizer_ = Normalizer::read(*part);
  const auto pre_tokenizer = entry.find("pre_tokenizer");
  if (pre_tokenizer) pre_tokenizer_ = PreTokenizer::read(*pre_tokenizer);
  model_ = TokenModel::read(entry.at("model"));
  if (const auto part = entry.find("decoder")) decoder_ = Decoder::read(*part);
  added_ = AddedTokens(entry.find("added_tokens"), lists, model_->vocabulary(), normalizer_.get());
  if (const auto part = entry.find("post_processor")) {
    post_processor_ = PostProcessor::read(*part);
    for (const std::int32_t id : post_processor_ ? post_processor_->special_ids() : std::vector<std::int32_t>{}) {
      if (!has_token(id)) fail("{} adds id {}, which no token has", part->where(), id);
    }
  }
  bpe_ = dynamic_cast<const Bpe*>(model_.get());
  if (bpe_ != nullptr && pre_tokenizer) words_ = find_byte_level_words(*pre_tokenizer);
  if (words_) scanner_.emplace(words_->rule);
  cutter_.emplace(entry, normalizer_.get(), *model_, added_);
}

std::vector<std::int32_t> HuggingFaceTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  const std::size_t invalid = unicode::find_invalid(text);
  if (invalid != std::string_view::npos) fail("the text is not UTF-8 at byte {}", invalid);
  const WordCachePool::Lease cache(caches_);
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  if (words_) {
    encode_bytes(text, *cache, ids);
  } else {
    encode_pieces(text, *cache, ids);
  }
  return post_processor_ == nullptr ? ids : post_processor_->apply(std::move(ids), add_special_tokens);
}

std::optional<Tokenizer::Cut> HuggingFaceTokenizer::find_cut(std::string_view text, std::size_t from) const {
  return cutter_->find(text, from);
}

void HuggingFaceTokenizer::encode_words(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = scanner_->end_of_word(text, begin);
    bpe_->tokenize_bytes(text.substr(begin, end - begin), cache, ids);
    begin = end;
  }
}

void HuggingFaceTokenizer::encode_words_between_digits(std::string_view text, WordCache& cache,
                                                       std::vector<std::int32_t>& ids) const {
  const unicode::ClassTable& table = unicode::classes();
  for (const Stretch& part : find_characters(text, [&](char32_t c) { return table.is(c, unicode::numeric); })) {
    encode_words(text.substr(part.begin, part.end - part.begin), cache, ids);
  }
}

void HuggingFaceTokenizer::encode_bytes(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const {
  std::string normalized, prefixed;
  for (const AddedSpan& raw : added_.find_raw(text)) {
    if (raw.id != AddedTokens::none) {
      ids.push_back(raw.id);
      continue;
    }
    std::string_view part = text.substr(raw.begin, raw.end - raw.begin);
    if (normalizer_ != nullptr && !normalizer_->leaves(part)) part = normalized = normalizer_->apply(part);
    for (const AddedSpan& span : added_.find_normalized(part)) {
      if (span.id != AddedTokens::none) {
        ids.push_back(span.id);
        continue;
      }
      std::string_view words = part.substr(span.begin, span.end - span.begin);
      if (words_->add_prefix_space && !words.starts_with(' ')) {
        prefixed.assign(" ").append(words);
        words = prefixed;
      }
      if (words_->split_digits) {
        encode_words_between_digits(words, cache, ids);
      } else {
        encode_words(words, cache, ids);
      }
    }
  }
}

void HuggingFaceTokenizer::encode_pieces(std::string_view text, WordCache& cache,
                                         std::vector<std::int32_t>& ids) const {
  if (text.empty()) return;
  const Piece whole{std::string(text)};
  std::vector<Piece> pieces;
  for (const AddedSpan& raw : added_.find_raw(text)) {
    Piece part = whole.slice(raw.begin, raw.end);
    part.id = raw.id;
    if (part.id != Piece::unknown) {
      pieces.push_back(std::move(part));
      continue;
    }
    if (normalizer_ != nullptr) normalizer_->apply(part);
    for (const AddedSpan& span : added_.find_normalized(part.text)) {
      pieces.push_back(part.slice(span.begin, span.end));
      pieces.back().id = span.id;
    }
  }
  if (pre_tokenizer_ != nullptr) pre_tokenizer_->apply(pieces);
  for (const Piece& piece : pieces) {
    if (piece.id != Piece::unknown) {
      ids.push_back(piece.id);
    } else if (!piece.text.empty()) {
      model_->tokenize(piece.text, cache, ids);
    }
  }
}

std::string HuggingFaceTokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const std::int32_t id : ids) {
    if (!has_token(id)) continue;
    std::string token =
        added_.by_id(id) != nullptr ? added_.decoded_form(id) : std::string(model_->vocabulary().token(id));
    if (skip_special_tokens && added_.is_special(token)) continue;
    tokens.push_back(std::move(token));
  }
  if (decoder_ != nullptr) decoder_->apply(tokens);
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && decoder_ == nullptr) text += ' ';
    text += tokens[i];
  }
  return text;
}

std::int32_t HuggingFaceTokenizer::vocab_size() const { return std::max(model_->vocabulary().end(), added_.end()); }

std::optional<std::int32_t> HuggingFaceTokenizer::token_to_id(std::string_view token) const {
  std::int32_t id = added_.find_id(token);
  if (id == AddedTokens::none) id = model_->vocabulary().find(token);
  if (id == Vocabulary::none) return std::nullopt;
  return id;
}

std::string HuggingFaceTokenizer::id_to_token(std::int32_t id) const {
  if (const AddedToken* token = added_.by_id(id)) return token->content;
  return model_->vocabulary().contains(id) ? std::string(model_->vocabulary().token(id)) : std::string();
}

std::string HuggingFaceTokenizer::fingerprint() const {
  const auto show = [](const std::optional<std::int32_t>& id) { return id ? std::to_string(*id) : std::string("-"); };
  return fmt::format("{}:bos={}:eos={}", fingerprint_, show(special_tokens_.bos_id), show(special_tokens_.eos_id));
}

}  // namespace heddle
