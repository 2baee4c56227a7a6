#include "data/tokenizer/tokenizer_settings.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

AddedToken named_token(std::string content) {
  AddedToken token;
  token.content = std::move(content);
  token.special = true;
  return token;
}

AddedToken read_token(const JsonEntry& entry) {
  AddedToken token = named_token(entry.string("content"));
  if (token.content.empty()) entry.at("content").refuse("a text");
  token.single_word = entry.boolean("single_word", false);
  token.lstrip = entry.boolean("lstrip", false);
  token.rstrip = entry.boolean("rstrip", false);
  token.normalized = entry.boolean("normalized", !entry.boolean("special", false));
  token.special = entry.boolean("special", false);
  return token;
}

AddedToken read_special(const JsonEntry& entry) {
  if (entry.value().is_string()) return named_token(entry.string());
  AddedToken token = read_token(entry);
  token.special = true;
  return token;
}

class SettingsReader {
 public:
  SettingsReader(const fs::path& folder, TokenizerSettings::Beside beside) : folder_(folder), beside_(beside) {
    settings_.is_folder = true;
  }

  TokenizerSettings read() {
    read_object_file(folder_ / "tokenizer_config.json", [this](const JsonEntry& file) { read_config(file); });
    if (!has_decoder_) {
      read_object_file(folder_ / "special_tokens_map.json",
                       [this](const JsonEntry& file) { read_special_tokens(file); });
      read_object_file(folder_ / "added_tokens.json", [this](const JsonEntry& file) { read_added_tokens(file); });
    }
    std::sort(settings_.added.begin(), settings_.added.end(),
              [](const AddedToken& a, const AddedToken& b) { return a.id < b.id; });
    return std::move(settings_);
  }

 private:
  void read_config(const JsonEntry& file) {
    if (beside_ == TokenizerSettings::Beside::sentencepiece) read_class(file);
    if (const auto list = file.find("added_tokens_decoder")) {
      has_decoder_ = true;
      read_decoder(*list);
    }
    read_special_tokens(file);
  }

  void read_class(const JsonEntry& file) {
    // Others number the pieces anew or add some of their own.
    static constexpr std::string_view known[] = {
        "GemmaTokenizer",      "GemmaTokenizerFast",      "LlamaTokenizer",       "LlamaTokenizerFast",
        "PreTrainedTokenizer", "PreTrainedTokenizerFast", "SentencePieceBackend", "TokenizersBackend"};
    const auto name = file.find("tokenizer_class");
    const bool is_gemma = name && name->one_of(known) < 2;
    settings_.legacy = file.boolean("legacy", true) || is_gemma;
    settings_.add_prefix_space = file.boolean("add_prefix_space", true);
  }

  void read_decoder(const JsonEntry& list) {
    list.require_object();
    for (const auto& [key, value] : list.value().items()) {
      const JsonEntry entry = list.child(value, key);
      std::int32_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size() || id < 0 || id >= most_ids) {
        fail("{}: the key is {}; expected an id from 0 to {}", entry.where(), Json(key).dump(), most_ids - 1);
      }
      add(read_token(entry), id, entry);
    }
  }

  void read_added_tokens(const JsonEntry& file) {
    for (const auto& [content, id] : file.value().items()) {
      const JsonEntry entry = file.child(id, Json(content).dump());
      if (content.empty() || entry.count() >= most_ids) {
        entry.refuse(fmt::format("a text with an id from 0 to {}", most_ids - 1));
      }
      AddedToken token = named_token(content);
      token.special =
          names(settings_.ends, content) || names(settings_.special, content) || names(settings_.more_special, content);
      token.normalized = !token.special;
      add(std::move(token), entry.count(), entry);
    }
  }

  static bool names(const std::vector<AddedToken>& tokens, const std::string& content) {
    return std::any_of(tokens.begin(), tokens.end(), [&](const AddedToken& token) { return token.content == content; });
  }

  void add(AddedToken token, std::int32_t id, const JsonEntry& entry) {
    for (const AddedToken& other : settings_.added) {
      if (other.content == token.content || other.id == id) {
        fail("{}: the token {} of id {} is at odds with {} of id {}", entry.where(), Json(token.content).dump(), id,
             Json(other.content).dump(), other.id);
      }
    }
    token.id = id;
    settings_.added.push_back(std::move(token));
  }

  void read_special_tokens(const JsonEntry& file) {
    read_named(file, "bos_token", settings_.names_bos, settings_.ends);
    read_named(file, "eos_token", settings_.names_eos, settings_.ends);
    read_named(file, "unk_token", settings_.names_unk, settings_.special);
    for (std::size_t i = 0; i < std::size(other_names); ++i) {
      read_named(file, other_names[i], names_other_[i], settings_.special);
    }
    read_more(file, "additional_special_tokens");
    read_more(file, "extra_special_tokens");  // its newer name
  }

  void read_more(const JsonEntry& file, std::string_view key) {
    const auto list = file.find(key);
    if (!list || names_additional_) return;
    if (list->value().is_object()) {  // names that a model's own code uses, and their tokens
      for (const auto& [name, value] : list->value().items()) {
        settings_.more_special.push_back(read_special(list->child(value, name)));
      }
    } else {
      for (const JsonEntry& entry : list->elements()) settings_.more_special.push_back(read_special(entry));
    }
    names_additional_ = !list->value().empty();
  }

  static void read_named(const JsonEntry& file, std::string_view key, bool& is_named, std::vector<AddedToken>& tokens) {
    const auto entry = file.find(key);
    if (is_named || !entry) return;
    is_named = true;
    tokens.push_back(read_special(*entry));
  }

  static constexpr std::int32_t most_ids = 1 << 24;
  static constexpr std::string_view other_names[] = {"sep_token", "pad_token", "cls_token", "mask_token"};

  const fs::path& folder_;
  TokenizerSettings::Beside beside_;
  TokenizerSettings settings_;
  bool has_decoder_ = false, names_additional_ = false, names_other_[std::size(other_names)] = {};
};

}  // namespace

TokenizerSettings TokenizerSettings::read(const std::filesystem::path& folder, Beside beside) {
  return SettingsReader(folder, beside).read();
}

}  // namespace heddle
