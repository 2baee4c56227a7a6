#include "data/tokenizer/gguf_tokenizer.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "data/tokenizer/gguf_merges.h"
#include "data/tokenizer/gguf_pre_tokenizers.h"
#include "data/tokenizer/hash.h"
#include "data/tokenizer/hugging_face.h"
#include "data/tokenizer/unicode.h"
#include "formats/gguf.h"

namespace heddle {
namespace {

constexpr std::string_view kBlank = "\xE2\x96\x81";  // U+2581, SentencePiece's visible space

/// tokenizer.ggml.*, checked.
class GgufVocabulary {
 public:
  explicit GgufVocabulary(const GgufMetadata& metadata) : metadata_(metadata) {
    const auto* tokens = metadata.texts(key("tokens"));
    if (tokens == nullptr) metadata.refuse(key("tokens"), "a list of tokens");
    tokens_ = tokens;
    types_ = of_each<std::int64_t>(metadata.integers(key("token_type")), "token_type");
    std::unordered_set<std::string_view> seen;
    for (std::size_t id = 0; id < tokens_->size(); ++id) {
      const std::string& token = (*tokens_)[id];
      if (unicode::find_invalid(token) != std::string_view::npos) {
        fail("{}: {}[{}] is {}; expected UTF-8", metadata.file(), key("tokens"), id, text_excerpt(token));
      }
      if (!is_padding(id) && !seen.insert(token).second) {
        fail("{}: {}[{}] is {}, which another id has too; expected distinct tokens", metadata.file(), key("tokens"), id,
             text_excerpt(token));
      }
    }
  }

  static std::string key(std::string_view name) { return "tokenizer.ggml." + std::string(name); }
  const GgufMetadata& metadata() const { return metadata_; }
  std::size_t size() const { return tokens_->size(); }
  const std::string& token(std::size_t id) const { return (*tokens_)[id]; }
  GgufTokenType type(std::size_t id) const {
    return types_ == nullptr ? GgufTokenType::normal : static_cast<GgufTokenType>((*types_)[id]);
  }
  const std::vector<std::string>& tokens() const { return *tokens_; }
  /// What fills the table of embeddings up: "[PAD7]" as id 7, of several types; and tokens without text.
  bool is_padding(std::size_t id) const {
    const std::string& text = token(id);
    if (text.empty()) return true;
    return text.front() == '[' && type(id) != GgufTokenType::normal && text == fmt::format("[PAD{}]", id);
  }
  bool has_bytes() const {
    for (std::size_t id = 0; id < size(); ++id) {
      if (type(id) == GgufTokenType::byte) return true;
    }
    return false;
  }

  /// The id under tokenizer.ggml.NAME_token_id, or else `absent` if there is such a token.
  std::optional<std::size_t> special(std::string_view name, std::optional<std::size_t> absent = std::nullopt) const {
    const std::string full = key(std::string(name) + "_token_id");
    if (metadata_.has(full)) {
      if (metadata_.integer(full, INT32_MIN, UINT32_MAX) == UINT32_MAX) return std::nullopt;  // -1: none
      return static_cast<std::size_t>(metadata_.integer(full, 0, static_cast<std::int64_t>(size()) - 1));
    }
    return absent && *absent < size() ? absent : std::nullopt;
  }

  template <typename Number>
  const std::vector<Number>* of_each(const std::vector<Number>* list, std::string_view name) const {
    if (list != nullptr && list->size() < size()) metadata_.refuse(key(name), fmt::format("{} numbers", size()));
    return list;
  }

 private:
  const GgufMetadata& metadata_;
  const std::vector<std::string>* tokens_;
  const std::vector<std::int64_t>* types_;
};

/// BPE on bytes; on characters with bytes for those unknown, its merges given by scores or listed.
enum class Kind { byte_level, scored, listed };

Kind kind_of(const GgufMetadata& metadata) {
  const std::string model = metadata.text(GgufVocabulary::key("model"));
  if (model == "gpt2") return Kind::byte_level;
  if (model == "llama") return Kind::scored;
  if (model == "gemma4") return Kind::listed;
  metadata.refuse(GgufVocabulary::key("model"), "gpt2, llama or gemma4: others are not supported");
}

std::string pre_tokenizer_name(const GgufMetadata& metadata) {
  return metadata.text_or(GgufVocabulary::key("pre"), "default");
}

GgufPreTokenizer pre_tokenizer_of(const GgufMetadata& metadata) {
  const auto found = find_gguf_pre_tokenizer(pre_tokenizer_name(metadata));
  if (!found) metadata.refuse(GgufVocabulary::key("pre"), "the name of a pre-tokenizer that is known");
  return *found;
}

/// Special tokens by their roles.
struct Roles {
  std::optional<std::size_t> bos, eos, unk, pad;
  bool add_bos = false, add_eos = false;
};

Roles roles_of(const GgufVocabulary& vocabulary) {
  const GgufMetadata& metadata = vocabulary.metadata();
  const Kind kind = kind_of(metadata);
  const auto usual = [&](std::size_t id) { return kind == Kind::scored ? std::optional(id) : std::nullopt; };
  Roles roles;
  roles.bos = vocabulary.special("bos", usual(1));
  roles.eos = vocabulary.special("eos", usual(2));
  roles.unk = vocabulary.special("unknown", usual(0));
  roles.pad = vocabulary.special("padding");
  const bool adds_bos = kind != Kind::byte_level || pre_tokenizer_of(metadata).adds_bos;
  roles.add_bos = metadata.boolean_or(vocabulary.key("add_bos_token"), adds_bos && roles.bos.has_value());
  roles.add_eos = metadata.boolean_or(vocabulary.key("add_eos_token"), false);
  if (roles.add_bos && !roles.bos) metadata.refuse(vocabulary.key("bos_token_id"), "an id, as add_bos_token is true");
  if (roles.add_eos && !roles.eos) metadata.refuse(vocabulary.key("eos_token_id"), "an id, as add_eos_token is true");
  return roles;
}

Json vocabulary_map(const GgufVocabulary& vocabulary) {
  Json map = Json::object();
  auto& members = map.get_ref<Json::object_t&>();  // whose own insertion looks for the key first, one by one
  members.reserve(vocabulary.size());
  for (std::size_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary.is_padding(id)) members.push_back({vocabulary.token(id), Json(id)});
  }
  return map;
}

/// Phi-3's special tokens take the white space behind them with them. GGUF does not say it; llama.cpp knows by name.
bool strips_right(const GgufVocabulary& vocabulary, std::size_t id) {
  std::string name = vocabulary.metadata().text_or("general.name", "");
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (name.find("phi-3") == std::string::npos && name.find("phi3") == std::string::npos) return false;
  const std::string& token = vocabulary.token(id);
  return token != "<unk>" && token != "<s>" && token != "<|endoftext|>";
}

Json added_tokens(const GgufVocabulary& vocabulary) {
  Json added = Json::array();
  for (std::size_t id = 0; id < vocabulary.size(); ++id) {
    const GgufTokenType type = vocabulary.type(id);
    const bool is_special = type == GgufTokenType::control || type == GgufTokenType::unknown;
    if ((!is_special && type != GgufTokenType::user_defined) || vocabulary.is_padding(id)) continue;
    added.push_back(Json{{"id", id},
                         {"content", vocabulary.token(id)},
                         {"single_word", false},
                         {"lstrip", false},
                         {"rstrip", strips_right(vocabulary, id)},
                         {"normalized", false},
                         {"special", is_special}});
  }
  return added;
}

/// Null where nothing is put around a text.
Json post_processor(const GgufVocabulary& vocabulary, const Roles& roles) {
  if (!roles.add_bos && !roles.add_eos) return nullptr;
  Json single = Json::array(), pair = Json::array(), tokens = Json::object();
  const auto add = [&](std::optional<std::size_t> id, Json& parts, int type) {
    const std::string& token = vocabulary.token(*id);
    parts.push_back({{"SpecialToken", {{"id", token}, {"type_id", type}}}});
    tokens[token] = {{"id", token}, {"ids", Json::array({*id})}, {"tokens", Json::array({token})}};
  };
  const auto add_text = [&](Json& parts, const char* name, int type) {
    if (roles.add_bos) add(roles.bos, parts, type);
    parts.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    if (roles.add_eos) add(roles.eos, parts, type);
  };
  add_text(single, "A", 0);
  add_text(pair, "A", 0);
  add_text(pair, "B", 1);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

Json bpe_model(Json vocab, Json merges) {
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(vocab)},
          {"merges", std::move(merges)}};
}

Json listed_merges(const GgufMetadata& metadata) {
  const auto* merges = metadata.texts(GgufVocabulary::key("merges"));
  if (merges == nullptr) metadata.refuse(GgufVocabulary::key("merges"), "a list of merges");
  Json list = Json::array();
  list.get_ref<Json::array_t&>().assign(merges->begin(), merges->end());
  return list;
}

Json scored_merges(const GgufVocabulary& vocabulary) {
  const std::string key = GgufVocabulary::key("scores");
  const auto* scores = vocabulary.of_each(vocabulary.metadata().numbers(key), "scores");
  if (scores == nullptr) vocabulary.metadata().refuse(key, "a list of numbers");
  std::vector<ScoredToken> mergeable;
  for (std::size_t id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.type(id) == GgufTokenType::normal && !vocabulary.is_padding(id)) {
      mergeable.push_back({vocabulary.token(id), (*scores)[id]});
    }
  }
  return merges_by_score(mergeable);
}

void add_byte_level(const GgufVocabulary& vocabulary, Json& document) {
  const GgufMetadata& metadata = vocabulary.metadata();
  const GgufPreTokenizer pre = pre_tokenizer_of(metadata);
  document["normalizer"] = pre.normalizer;
  document["pre_tokenizer"] = pre.pre_tokenizer;
  document["decoder"] = {
      {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  document["model"] = bpe_model(vocabulary_map(vocabulary), listed_merges(metadata));
  document["model"]["ignore_merges"] = pre.ignore_merges;
}

/// SentencePiece's way: spaces made visible, no words.
void add_visible_spaces(const GgufVocabulary& vocabulary, const Roles& roles, Kind kind, Json& document) {
  const GgufMetadata& metadata = vocabulary.metadata();
  if (metadata.boolean_or(vocabulary.key("remove_extra_whitespaces"), false)) {
    metadata.refuse(vocabulary.key("remove_extra_whitespaces"), "false");
  }
  const bool has_prefix = metadata.boolean_or(vocabulary.key("add_space_prefix"), kind == Kind::scored);
  const Json show_blanks = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kBlank}};
  const Json prepend = {{"type", "Prepend"}, {"prepend", kBlank}};
  document["normalizer"] =
      has_prefix ? Json{{"type", "Sequence"}, {"normalizers", Json::array({prepend, show_blanks})}} : show_blanks;
  Json decoders = Json::array({Json{{"type", "Replace"}, {"pattern", {{"String", kBlank}}}, {"content", " "}},
                               Json{{"type", "ByteFallback"}}, Json{{"type", "Fuse"}}});
  if (has_prefix) decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  document["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
  document["model"] =
      bpe_model(vocabulary_map(vocabulary), kind == Kind::scored ? scored_merges(vocabulary) : listed_merges(metadata));
  if (roles.unk) document["model"]["unk_token"] = vocabulary.token(*roles.unk);
  document["model"]["fuse_unk"] = true;
  document["model"]["byte_fallback"] = vocabulary.has_bytes();
}

bool has_tokenizer(const GgufMetadata& metadata) { return metadata.has(GgufVocabulary::key("model")); }

Json tokenizer_document(const GgufVocabulary& vocabulary) {
  const Roles roles = roles_of(vocabulary);
  Json document = {{"version", "1.0"},          {"truncation", nullptr}, {"padding", nullptr},
                   {"added_tokens", nullptr},   {"normalizer", nullptr}, {"pre_tokenizer", nullptr},
                   {"post_processor", nullptr}, {"decoder", nullptr}};
  document["added_tokens"] = added_tokens(vocabulary);
  document["post_processor"] = post_processor(vocabulary, roles);
  if (const Kind kind = kind_of(vocabulary.metadata()); kind == Kind::byte_level) {
    add_byte_level(vocabulary, document);
  } else {
    add_visible_spaces(vocabulary, roles, kind, document);
  }
  return document;
}

/// The text of the one template, or a list of {name, template} where there are several.
Json chat_templates(const GgufMetadata& metadata) {
  constexpr std::string_view kTemplate = "tokenizer.chat_template";
  Json templates = Json::array();
  if (metadata.has(kTemplate)) templates.push_back({{"name", "default"}, {"template", metadata.text(kTemplate)}});
  if (const auto* names = metadata.texts("tokenizer.chat_templates")) {
    for (const std::string& name : *names) {
      const std::string key = fmt::format("{}.{}", kTemplate, name);
      if (name != "default" && metadata.has(key)) {
        templates.push_back({{"name", name}, {"template", metadata.text(key)}});
      }
    }
  }
  if (templates.empty()) return nullptr;
  return templates.size() == 1 && metadata.has(kTemplate) ? templates[0]["template"] : templates;
}

}  // namespace

Json gguf_tokenizer_document(const GgufMetadata& metadata) { return tokenizer_document(GgufVocabulary(metadata)); }

Json gguf_tokenizer_config(const GgufMetadata& metadata) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  if (has_tokenizer(metadata)) {
    const GgufVocabulary vocabulary(metadata);
    const Roles roles = roles_of(vocabulary);
    const auto name = [&](const char* key, std::optional<std::size_t> id) {
      if (id) config[key] = vocabulary.token(*id);
    };
    name("bos_token", roles.bos);
    name("eos_token", roles.eos);
    name("unk_token", roles.unk);
    name("pad_token", roles.pad);
  }
  if (Json templates = chat_templates(metadata); !templates.is_null()) config["chat_template"] = std::move(templates);
  return config;
}

std::vector<TokenizerFile> gguf_tokenizer_files(const GgufMetadata& metadata) {
  if (!has_tokenizer(metadata)) return {};
  return {{"tokenizer.json", gguf_tokenizer_document(metadata).dump(1) + "\n"},
          {"tokenizer_config.json", gguf_tokenizer_config(metadata).dump(2) + "\n"}};
}

std::unique_ptr<Tokenizer> load_gguf_tokenizer(const std::filesystem::path& path) {
  const GgufFile file(path);
  if (!has_tokenizer(file.metadata())) return nullptr;
  const GgufVocabulary vocabulary(file.metadata());
  const Json document = tokenizer_document(vocabulary);
  if (kind_of(file.metadata()) == Kind::byte_level && pre_tokenizer_name(file.metadata()) == "default") {
    warning("{}: tokenizer.ggml.pre does not name the pre-tokenizer; words are cut as llama.cpp does it then",
            path.string());
  }
  const std::string text = document.dump();
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  auto tokenizer = std::make_unique<HuggingFaceTokenizer>(JsonEntry(document, path.string()),
                                                          fmt::format("{:016x}{:016x}", hash.high64, hash.low64));
  const Roles roles = roles_of(vocabulary);
  const auto id = [](std::optional<std::size_t> role) {
    return role ? std::optional(static_cast<std::int32_t>(*role)) : std::nullopt;
  };
  tokenizer->set_special_tokens({id(roles.bos), id(roles.eos), std::nullopt, std::nullopt});
  return tokenizer;
}

}  // namespace heddle
