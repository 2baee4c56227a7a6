#include "data/tokenizer/bpe.h"

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/merging.h"
#include "data/tokenizer/unicode.h"

namespace heddle {
namespace {

using Symbol = WordCache::Symbol;

/// Words up to this many bytes are looked up whole; longer ones are cut first where no merge can join them.
constexpr std::size_t longest_uncut_word = 24;
constexpr char32_t dense_characters = 0x3000;

std::string show(std::string_view text) { return Json(std::string(text)).dump(); }

Bpe::MergeList read_merges(const JsonEntry& entry) {
  const Json& list = entry.value();
  if (!list.is_array()) entry.refuse("a list of merges");
  Bpe::MergeList merges;
  merges.reserve(list.size());
  std::size_t position = 0;
  for (const Json& merge : list) {
    const auto refuse = [&] {
      fail("{}[{}] is {}; expected two tokens with one space between them, or a list of two tokens", entry.where(),
           position, merge.dump(-1, ' ', false, Json::error_handler_t::replace));
    };
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const std::size_t space = text.find(' ');
      if (!text.starts_with("#version")) {
        if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) refuse();
        merges.emplace_back(text.substr(0, space), text.substr(space + 1));
      }
    } else {
      if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) refuse();
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
    }
    ++position;
  }
  return merges;
}

}  // namespace

std::unique_ptr<Bpe> Bpe::read(const JsonEntry& entry) {
  const auto dropout = entry.find("dropout");
  if (dropout && dropout->number() != 0) dropout->refuse("null or 0: ids must not depend on chance");
  Options options;
  options.unk_token = entry.optional_string("unk_token");
  options.continuing_subword_prefix = entry.optional_string("continuing_subword_prefix");
  options.end_of_word_suffix = entry.optional_string("end_of_word_suffix");
  options.fuse_unk = entry.boolean("fuse_unk", false);
  options.byte_fallback = entry.boolean("byte_fallback", false);
  options.ignore_merges = entry.boolean("ignore_merges", false);
  const JsonEntry merges = entry.at("merges");
  return std::make_unique<Bpe>(Vocabulary(entry.at("vocab")), read_merges(merges), std::move(options), merges.where());
}

Bpe::Bpe(Vocabulary tokens, const MergeList& merges, Options options, const std::string& where)
    : TokenModel(std::move(tokens)), merges_(merges.size()), options_(std::move(options)) {
  const Vocabulary& known = vocabulary();
  const std::string prefix = options_.continuing_subword_prefix.value_or("");
  is_plain_ = prefix.empty() && options_.end_of_word_suffix.value_or("").empty();
  if (options_.unk_token) unk_id_ = known.find(*options_.unk_token);

  std::vector<std::int32_t> merged;
  merged.reserve(merges.size());
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string& left = merges[rank].first;
    const std::string& right = merges[rank].second;
    const auto find = [&](const std::string& token, std::string_view what) {
      const std::int32_t id = known.find(token);
      if (id == Vocabulary::none) {
        fail("{}[{}] merges {} and {}; {} {} is not in the vocabulary", where, rank, show(left), show(right), what,
             show(token));
      }
      return id;
    };
    const std::int32_t left_id = find(left, "its part"), right_id = find(right, "its part");
    // Like the reference: as many bytes as the prefix has are cut, whatever they are.
    merged.push_back(find(left + (right.size() < prefix.size() ? "" : right.substr(prefix.size())), "its result"));
    merges_.set(left_id, right_id, {static_cast<std::uint32_t>(rank), merged.back()});
  }

  characters_.resize(dense_characters);
  for (char32_t code = 0; code < dense_characters; ++code) {
    std::string text;
    unicode::append(text, code);
    characters_[code] = known.find(text);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_level_[byte] = characters_[byte_level::character_of(static_cast<unsigned char>(byte))];
    byte_fallback_[byte] = known.find(fmt::format("<0x{:02X}>", byte));
  }
  if (is_plain_) find_joined_characters(merged);
  const auto is_byte = [this](const std::string& token) {
    return token.size() == 6 && token.starts_with("<0x") &&
           std::count(byte_fallback_.begin(), byte_fallback_.end(), vocabulary().find(token)) > 0;
  };
  bytes_stand_alone_ = options_.byte_fallback &&
                       std::count(byte_fallback_.begin(), byte_fallback_.end(), Vocabulary::none) == 0 &&
                       std::none_of(merges.begin(), merges.end(),
                                    [&](const auto& merge) { return is_byte(merge.first) || is_byte(merge.second); });
}

void Bpe::find_joined_characters(const std::vector<std::int32_t>& merged) {
  for (const std::int32_t id : merged) {
    const std::string_view token = vocabulary().token(id);
    char32_t previous = 0;
    for (std::size_t at = 0; at < token.size();) {
      const unicode::Character c = unicode::decode(token.data() + at);
      if (at > 0) joined_.set(static_cast<std::int32_t>(previous), static_cast<std::int32_t>(c.code), {});
      previous = c.code;
      at += static_cast<std::size_t>(c.length);
    }
  }
}

std::int32_t Bpe::find_character(char32_t code, std::string_view text) const {
  return code < dense_characters ? characters_[code] : vocabulary().find(text);
}

bool Bpe::are_apart(char32_t left, char32_t right) const {
  const auto is_known = [this](char32_t code) {
    std::string text;
    unicode::append(text, code);
    return find_character(code, text) != Vocabulary::none;
  };
  return is_plain_ && !options_.ignore_merges && is_known(left) && is_known(right) &&
         joined_.find(static_cast<std::int32_t>(left), static_cast<std::int32_t>(right)) == nullptr;
}

void Bpe::tokenize(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const {
  if (options_.ignore_merges) {
    const std::int32_t id = vocabulary().find(word);
    if (id != Vocabulary::none) {
      ids.push_back(id);
      return;
    }
  }
  if (is_plain_ && word.size() > longest_uncut_word) {
    tokenize_parts(word, cache, ids);
  } else {
    tokenize_whole(word, cache, ids);
  }
}

/// Cuts where no merge can reach across: between characters that are symbols and that no merged token holds side by
/// side, and around characters that become bytes. Other unknown ones stay with their neighbours: they may be fused.
void Bpe::tokenize_parts(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const {
  std::size_t begin = 0;
  char32_t previous = 0;
  bool previous_known = false;
  for (std::size_t at = 0; at < word.size();) {
    const unicode::Character c = unicode::decode(word.data() + at);
    const auto length = static_cast<std::size_t>(c.length);
    const bool known = find_character(c.code, word.substr(at, length)) != Vocabulary::none;
    const bool is_apart = known && previous_known ? joined_.find(static_cast<std::int32_t>(previous),
                                                                 static_cast<std::int32_t>(c.code)) == nullptr
                                                  : bytes_stand_alone_;
    if (is_apart && at > begin) {
      tokenize_whole(word.substr(begin, at - begin), cache, ids);
      begin = at;
    }
    previous = c.code;
    previous_known = known;
    at += length;
  }
  tokenize_whole(word.substr(begin), cache, ids);
}

void Bpe::tokenize_whole(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const {
  const std::uint64_t hash = hash_text(word);
  if (word.size() <= WordCache::longest_word && cache.find(word, hash, ids)) return;
  const std::size_t before = ids.size();
  cache.symbols.clear();
  add_symbols(word, cache.symbols);
  merge_symbols(cache);
  for (const Symbol& symbol : cache.symbols) {
    if (symbol.is_alive) ids.push_back(symbol.id);
  }
  cache.add(word, hash, std::span(ids).subspan(before));
}

void Bpe::tokenize_bytes(std::string_view bytes, WordCache& cache, std::vector<std::int32_t>& ids) const {
  const std::uint64_t hash = hash_text(bytes);
  if (bytes.size() <= WordCache::longest_word && cache.find(bytes, hash, ids)) return;
  const std::size_t before = ids.size();
  std::int32_t whole = Vocabulary::none;
  if (options_.ignore_merges) whole = vocabulary().find(byte_level::encode(bytes));
  if (whole != Vocabulary::none) {
    ids.push_back(whole);
  } else {
    cache.symbols.clear();
    const auto is_known = [this](char byte) {
      return byte_level_[static_cast<unsigned char>(byte)] != Vocabulary::none;
    };
    if (is_plain_ && std::all_of(bytes.begin(), bytes.end(), is_known)) {
      for (const char byte : bytes) add_symbol(cache.symbols, byte_level_[static_cast<unsigned char>(byte)]);
    } else {
      add_symbols(byte_level::encode(bytes), cache.symbols);
    }
    merge_symbols(cache);
    for (const Symbol& symbol : cache.symbols) {
      if (symbol.is_alive) ids.push_back(symbol.id);
    }
  }
  cache.add(bytes, hash, std::span(ids).subspan(before));
}

bool Bpe::fall_back_to_bytes(std::string_view text, std::vector<Symbol>& symbols) const {
  const auto id_of = [this](char byte) { return byte_fallback_[static_cast<unsigned char>(byte)]; };
  if (std::any_of(text.begin(), text.end(), [&](char byte) { return id_of(byte) == Vocabulary::none; })) return false;
  for (const char byte : text) add_symbol(symbols, id_of(byte));
  return true;
}

/// An unknown character waits until a known one follows, so that unknown ones can be fused. Bytes of the fallback do
/// not end the wait: in the reference too they then come before the unknown token.
void Bpe::add_symbols(std::string_view word, std::vector<Symbol>& symbols) const {
  bool unknown_waits = false;
  for (std::size_t at = 0; at < word.size();) {
    const unicode::Character c = unicode::decode(word.data() + at);
    const std::size_t end = at + static_cast<std::size_t>(c.length);
    const std::string_view own = word.substr(at, end - at);
    std::string decorated;
    std::int32_t id = Vocabulary::none;
    std::string_view text = own;
    if (is_plain_) {
      id = find_character(c.code, own);
    } else {
      if (at > 0) decorated += options_.continuing_subword_prefix.value_or("");
      decorated += own;
      if (end == word.size()) decorated += options_.end_of_word_suffix.value_or("");
      text = decorated;
      id = vocabulary().find(text);
    }
    at = end;
    if (id != Vocabulary::none) {
      if (unknown_waits) add_symbol(symbols, unk_id_);
      unknown_waits = false;
      add_symbol(symbols, id);
      continue;
    }
    if (options_.byte_fallback && fall_back_to_bytes(text, symbols)) continue;
    if (!options_.unk_token) continue;
    if (unk_id_ == Vocabulary::none) {
      fail("tokenizer.json: model.unk_token is {}, which is not in model.vocab; it is needed for {}",
           show(*options_.unk_token), show(own));
    }
    if (unknown_waits && !options_.fuse_unk) add_symbol(symbols, unk_id_);
    unknown_waits = true;
  }
  if (unknown_waits) add_symbol(symbols, unk_id_);
}

void Bpe::merge_symbols(WordCache& cache) const {
  heddle::merge_symbols(merges_, cache, [](std::int32_t, std::int32_t, std::int32_t) {});
}

}  // namespace heddle
