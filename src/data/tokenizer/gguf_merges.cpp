#include "data/tokenizer/gguf_merges.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <unordered_map>

#include "data/tokenizer/unicode.h"

namespace heddle {
namespace {

struct Merge {
  std::string_view left, right;
  double score;
  std::size_t left_length, right_length;  // characters
};

}  // namespace

Json merges_by_score(const std::vector<ScoredToken>& tokens) {
  std::unordered_map<std::string_view, std::size_t> places;
  places.reserve(tokens.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) places.emplace(tokens[i].text, i);
  std::vector<Merge> merges;
  for (const ScoredToken& token : tokens) {
    const std::size_t first = merges.size(), length = unicode::count_characters(token.text);
    std::size_t left_length = 1;
    for (std::size_t cut = 1; cut < token.text.size(); ++cut) {
      if (!unicode::starts_character(token.text[cut])) continue;
      const std::string_view left = token.text.substr(0, cut), right = token.text.substr(cut);
      if (places.contains(left) && places.contains(right)) {
        merges.push_back({left, right, token.score, left_length, length - left_length});
      }
      ++left_length;
    }
    std::sort(merges.begin() + static_cast<std::ptrdiff_t>(first), merges.end(), [&](const Merge& a, const Merge& b) {
      return std::pair(places.at(a.left), places.at(a.right)) < std::pair(places.at(b.left), places.at(b.right));
    });
  }
  std::stable_sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.score, a.left_length, a.right_length) > std::tie(b.score, b.left_length, b.right_length);
  });
  Json list = Json::array();
  auto& items = list.get_ref<Json::array_t&>();
  items.reserve(merges.size());
  for (const Merge& merge : merges) {
    std::string text(merge.left);
    items.emplace_back(text.append(" ").append(merge.right));
  }
  return list;
}

}  // namespace heddle
