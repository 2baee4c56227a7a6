#include "data/tokenizer/special_tokens.h"

#include "data/tokenizer/json_entry.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

class SpecialTokenReader {
 public:
  SpecialTokenReader(const fs::path& folder, const Tokenizer& tokenizer) : folder_(folder), tokenizer_(tokenizer) {}

  SpecialTokens read() {
    read_object_file(folder_ / "tokenizer_config.json", [this](const JsonEntry& file) {
      read_names(file);
      if (const auto flag = file.find("add_bos_token")) found_.add_bos_token = flag->boolean();
      if (const auto flag = file.find("add_eos_token")) found_.add_eos_token = flag->boolean();
    });
    read_object_file(folder_ / "special_tokens_map.json", [this](const JsonEntry& file) { read_names(file); });
    if (!found_.bos_id) found_.bos_id = tokenizer_.bos_id();
    if (!found_.eos_id) found_.eos_id = tokenizer_.eos_id();
    for (const char* name : {"generation_config.json", "config.json"}) {
      if (found_.bos_id && found_.eos_id) break;
      read_object_file(folder_ / name, [this](const JsonEntry& file) { read_ids(file); });
    }
    return found_;
  }

 private:
  void read_names(const JsonEntry& file) {
    read_name(file, "bos_token", found_.bos_id);
    read_name(file, "eos_token", found_.eos_id);
  }
  void read_name(const JsonEntry& file, const char* key, std::optional<std::int32_t>& id) {
    const auto entry = file.find(key);
    if (id || !entry) return;
    const JsonEntry name = entry->value().is_object() ? entry->at("content") : *entry;
    id = tokenizer_.token_to_id(name.string());
    if (!id) name.refuse("a token of the vocabulary");
  }

  void read_ids(const JsonEntry& file) {
    read_id(file, "bos_token_id", found_.bos_id);
    read_id(file, "eos_token_id", found_.eos_id);
  }
  void read_id(const JsonEntry& file, const char* key, std::optional<std::int32_t>& id) {
    const auto entry = file.find(key);
    if (id || !entry) return;
    if (!entry->value().is_array()) {
      id = entry->count();
    } else if (!entry->value().empty()) {  // any of these ends a text; the first is appended to rows
      id = entry->elements().front().count();
    }
  }

  const fs::path& folder_;
  const Tokenizer& tokenizer_;
  SpecialTokens found_;
};

}  // namespace

SpecialTokens read_special_tokens(const std::filesystem::path& folder, const Tokenizer& tokenizer) {
  return SpecialTokenReader(folder, tokenizer).read();
}

}  // namespace heddle
