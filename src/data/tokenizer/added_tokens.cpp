#include "data/tokenizer/added_tokens.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace heddle {
namespace {

AddedToken read_token(const JsonEntry& entry) {
  AddedToken token;
  token.content = entry.string("content");
  token.id = entry.at("id").count();
  token.single_word = entry.at("single_word").boolean();
  token.lstrip = entry.at("lstrip").boolean();
  token.rstrip = entry.at("rstrip").boolean();
  token.normalized = entry.at("normalized").boolean();
  token.special = entry.at("special").boolean();
  return token;
}

std::size_t begin_of_spaces_before(std::string_view text, std::size_t end) {
  while (end > 0) {
    const unicode::Character c = unicode::decode_before(text, end);
    if (!unicode::classes().is(c.code, unicode::space)) break;
    end -= static_cast<std::size_t>(c.length);
  }
  return end;
}

std::size_t end_of_spaces_after(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const unicode::Character c = unicode::decode(text.data() + begin);
    if (!unicode::classes().is(c.code, unicode::space)) break;
    begin += static_cast<std::size_t>(c.length);
  }
  return begin;
}

bool is_inside_word(std::string_view text, std::size_t begin, std::size_t end) {
  const auto is_word = [](unicode::Character c) { return unicode::classes().is(c.code, unicode::word); };
  return (begin > 0 && is_word(unicode::decode_before(text, begin))) ||
         (end < text.size() && is_word(unicode::decode(text.data() + end)));
}

}  // namespace

void AddedTokens::Set::add(std::string_view text, std::int32_t id) {
  trie.add(text, id);
  begins[static_cast<unsigned char>(text[0])] = true;
  is_empty = false;
}

std::string AddedTokenLists::text() const {
  std::string text;
  for (const auto* list : {&added, &ends, &special, &more_special}) {
    for (const AddedToken& token : *list) {
      text += fmt::format("{}={}{}{}{}{}{},", token.id, Json(token.content).dump(), token.single_word ? "w" : "",
                          token.lstrip ? "l" : "", token.rstrip ? "r" : "", token.normalized ? "n" : "",
                          token.special ? "s" : "");
    }
    text += ";";
  }
  return text;
}

AddedTokens::AddedTokens(const std::optional<JsonEntry>& list, const AddedTokenLists& lists, const Vocabulary& model,
                         const Normalizer* normalizer)
    : next_id_(model.size()) {
  for (const JsonEntry& entry : list ? list->elements() : std::vector<JsonEntry>{}) {
    AddedToken token = read_token(entry);
    check_id(token, entry, model);
    add(std::move(token), model);
  }
  for (const AddedToken& token : lists.added) add(token, model);
  for (const AddedToken& token : lists.ends) {
    if (find_id(token.content) != none || model.find(token.content) != none) make_special(token, model);
  }
  for (const AddedToken& token : lists.special) make_special(token, model);
  for (const AddedToken& token : lists.more_special) {
    if (find_id(token.content) == none) make_special(token, model);
  }
  for (const auto& [id, token] : tokens_) {
    std::string& form = forms_[id];
    form = token.normalized && normalizer != nullptr ? normalizer->apply(token.content) : token.content;
    if (form.empty()) {
      fail("{}: the normalizer leaves nothing of {}", list ? list->where() : "added tokens",
           Json(token.content).dump());
    }
    (token.normalized ? normalized_ : raw_).add(form, id);
  }
}

/// That of the token as it is known already, or else the next free one.
std::int32_t AddedTokens::id_for(const std::string& content, const Vocabulary& model) const {
  std::int32_t id = find_id(content);
  if (id == none) id = model.find(content);
  return id == none ? next_id_ : id;
}

void AddedTokens::check_id(const AddedToken& token, const JsonEntry& entry, const Vocabulary& model) const {
  if (token.content.empty()) return;
  const std::int32_t id = id_for(token.content, model);
  if (id != token.id) {
    fail("{}: {} has id {}; by the vocabulary and the tokens before it its id is {}", entry.where(),
         Json(token.content).dump(), token.id, id);
  }
  if (model.contains(id) && model.token(id) != token.content) {
    fail("{}: {} has id {}, which model.vocab gives to {}", entry.where(), Json(token.content).dump(), id,
         Json(std::string(model.token(id))).dump());
  }
}

void AddedTokens::add(AddedToken token, const Vocabulary& model) {
  if (token.content.empty()) return;  // as the reference does
  const std::int32_t id = token.id = id_for(token.content, model);
  if (find_id(token.content) == none && model.find(token.content) == none) ++next_id_;
  ids_[token.content] = id;
  if (token.special) special_.insert(token.content);
  end_ = std::max(end_, id + 1);
  tokens_[id] = std::move(token);
}

void AddedTokens::make_special(const AddedToken& token, const Vocabulary& model) {
  const AddedToken* known = by_id(find_id(token.content));
  AddedToken changed = known == nullptr ? token : *known;
  changed.special = true;
  add(std::move(changed), model);
}

const AddedToken* AddedTokens::by_id(std::int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

std::int32_t AddedTokens::find_id(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  return found == ids_.end() ? none : found->second;
}

/// The longest token at the leftmost place, again and again. A token refused as part of a word is passed over whole.
std::vector<AddedSpan> AddedTokens::find(std::string_view text, const Set& set) const {
  std::vector<AddedSpan> spans;
  std::size_t covered = 0;
  for (std::size_t at = 0; !set.is_empty && at < text.size();) {
    std::int32_t id = none;
    std::size_t match_end = at + 1;
    if (set.begins[static_cast<unsigned char>(text[at])]) {
      std::int32_t node = ByteTrie::root;
      for (std::size_t end = at; end < text.size(); ++end) {
        node = set.trie.step(node, text[end]);
        if (node == ByteTrie::none) break;
        if (set.trie.value(node) == ByteTrie::none) continue;
        id = set.trie.value(node);
        match_end = end + 1;
      }
    }
    std::size_t begin = std::exchange(at, match_end);
    if (id == none) continue;
    const AddedToken& token = tokens_.at(id);
    std::size_t end = match_end;
    if (token.single_word && is_inside_word(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(begin_of_spaces_before(text, begin), covered);
    if (token.rstrip) end = end_of_spaces_after(text, end);
    if (covered < begin) spans.push_back({covered, begin, none});
    if (begin < end) spans.push_back({begin, end, id});  // else a token before has taken it with its white space
    covered = end;
  }
  if (covered != text.size()) spans.push_back({covered, text.size(), none});
  return spans;
}

}  // namespace heddle
