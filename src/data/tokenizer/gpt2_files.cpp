#include "data/tokenizer/gpt2_files.h"

#include <string>

namespace heddle {

Json make_gpt2_document(Json vocab, std::string_view merges) {
  Json list = Json::array();
  while (!merges.empty()) {
    const std::size_t end = std::min(merges.find('\n'), merges.size());
    std::string_view line = merges.substr(0, end);
    merges.remove_prefix(std::min(end + 1, merges.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) list.push_back(std::string(line));
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  Json added = Json::array();
  constexpr const char* end_of_text = "<|endoftext|>";
  if (vocab.is_object() && vocab.contains(end_of_text)) {
    added.push_back({{"id", vocab[end_of_text]},
                     {"content", end_of_text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  Json document;
  document["added_tokens"] = std::move(added);
  document["pre_tokenizer"] = byte_level;
  document["decoder"] = byte_level;
  document["model"]["type"] = "BPE";
  document["model"]["vocab"] = std::move(vocab);
  document["model"]["merges"] = std::move(list);
  return document;
}

}  // namespace heddle
