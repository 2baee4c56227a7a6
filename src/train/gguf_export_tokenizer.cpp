#include "train/gguf_export_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "data/tokenizer.h"
#include "data/tokenizer/gguf_merges.h"
#include "data/tokenizer/gguf_pre_tokenizers.h"
#include "data/tokenizer/gguf_tokenizer.h"
#include "data/tokenizer/gpt2_files.h"
#include "data/tokenizer/sentencepiece_model.h"
#include "formats/files.h"
#include "formats/json.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// Tokens by id, as GGUF lists them.
class TokenList {
 public:
  explicit TokenList(std::int64_t size)
      : texts_(static_cast<std::size_t>(size)), scores_(texts_.size(), kUnused), types_(texts_.size(), 5) {
    for (std::size_t id = 0; id < texts_.size(); ++id) texts_[id] = fmt::format("[PAD{}]", id);
  }

  bool has(std::int64_t id) const { return id >= 0 && id < static_cast<std::int64_t>(texts_.size()); }
  void set(std::int64_t id, std::string text, GgufTokenType type, double score = 0) {
    const auto index = static_cast<std::size_t>(id);
    texts_[index] = std::move(text);
    types_[index] = static_cast<std::int64_t>(type);
    scores_[index] = score;
  }
  void set_score(std::int64_t id, double score) { scores_[static_cast<std::size_t>(id)] = score; }

  void add_to(GgufMetadata& metadata, bool with_scores) && {
    metadata.add("tokenizer.ggml.tokens", std::move(texts_));
    if (with_scores) metadata.add("tokenizer.ggml.scores", std::move(scores_));
    metadata.add("tokenizer.ggml.token_type", std::move(types_));
  }

 private:
  static constexpr double kUnused = -1000;  // of what never wins a merge

  std::vector<std::string> texts_;
  std::vector<double> scores_;
  std::vector<std::int64_t> types_;
};

/// The files of a folder that say what the tokenizer is.
class TokenizerFolder {
 public:
  explicit TokenizerFolder(const fs::path& folder) : folder_(folder) {
    if (has("tokenizer.json")) {
      document_ = read_json_file(path("tokenizer.json"));
    } else if (has("vocab.json") && has("merges.txt")) {
      document_ = make_gpt2_document(read_json_file(path("vocab.json")), read_text_file(path("merges.txt")));
    }
    if (has("tokenizer_config.json")) settings_ = read_json_file(path("tokenizer_config.json"));
  }

  bool has(const char* name) const { return fs::exists(folder_ / name); }
  fs::path path(const char* name) const { return folder_ / name; }
  std::string file() const { return path(document_.is_null() ? "tokenizer.model" : "tokenizer.json").string(); }
  const Json& document() const { return document_; }  ///< null: tokenizer.model alone
  const Json& settings() const { return settings_; }
  std::string model_type() const { return document_.is_null() ? "" : document_.at("model").value("type", ""); }

 private:
  fs::path folder_;
  Json document_, settings_ = Json::object();
};

GgufTokenType added_type(const Json& token) {
  return token.value("special", false) ? GgufTokenType::control : GgufTokenType::user_defined;
}

/// Where the model's vocabulary lacks the id, the token is never predicted: it is left out, aloud.
bool is_listed(const TokenList& tokens, std::int64_t id, const std::string& text, const std::string& file) {
  if (tokens.has(id)) return true;
  warning("{}: token {} has id {}, beyond the model's vocabulary; it is left out", file, text_excerpt(text), id);
  return false;
}

void set_vocabulary(const TokenizerFolder& folder, TokenList& tokens) {
  for (const auto& [text, id] : folder.document().at("model").at("vocab").get_ref<const Json::object_t&>()) {
    const auto number = id.get<std::int64_t>();
    if (is_listed(tokens, number, text, folder.file())) tokens.set(number, text, GgufTokenType::normal);
  }
}

void set_added_tokens(const TokenizerFolder& folder, TokenList& tokens) {
  if (!folder.document().contains("added_tokens")) return;
  for (const Json& token : folder.document().at("added_tokens")) {
    const auto id = token.at("id").get<std::int64_t>();
    auto text = token.at("content").get<std::string>();
    if (is_listed(tokens, id, text, folder.file())) tokens.set(id, std::move(text), added_type(token), -1000);
  }
}

std::vector<std::string> merges_of(const TokenizerFolder& folder) {
  std::vector<std::string> merges;
  for (const Json& merge : folder.document().at("model").at("merges")) {
    if (merge.is_string()) {
      merges.push_back(merge.get<std::string>());
    } else {
      merges.push_back(merge.at(0).get<std::string>() + " " + merge.at(1).get<std::string>());
    }
  }
  return merges;
}

bool is_byte_token(std::string_view text) { return text.size() == 6 && text.starts_with("<0x") && text.ends_with('>'); }

/// Whether the normalizer (or the pre-tokenizer that stands for one) puts a blank before the text.
bool prepends_blank(const Json& step) {
  if (!step.is_object()) return false;
  const std::string type = step.value("type", "");
  if (type == "Prepend") return true;
  if (type == "Metaspace") {
    return step.contains("prepend_scheme") ? step.at("prepend_scheme") != "never"
                                           : step.value("add_prefix_space", true);
  }
  for (const char* parts : {"normalizers", "pretokenizers"}) {
    if (step.contains(parts)) return std::any_of(step[parts].begin(), step[parts].end(), prepends_blank);
  }
  return false;
}

/// SentencePiece's BPE in a tokenizer.json, which has merges in place of scores: what a merge gives scores the better,
/// the earlier it comes.
void add_scored_bpe(const TokenizerFolder& folder, TokenList tokens, GgufMetadata& metadata) {
  const Json& model = folder.document().at("model");
  const std::vector<std::string> merges = merges_of(folder);
  std::unordered_map<std::string, std::size_t> rank;
  for (std::string merged : merges) {
    merged.erase(merged.find(' '), 1);
    rank.emplace(std::move(merged), rank.size());
  }
  const std::string unknown = model.contains("unk_token") && model["unk_token"].is_string() ? model["unk_token"] : "";
  std::vector<std::pair<std::string, double>> mergeable;
  for (const auto& [text, id] : model.at("vocab").get_ref<const Json::object_t&>()) {
    const auto number = id.get<std::int64_t>();
    if (!is_listed(tokens, number, text, folder.file())) continue;
    const auto found = rank.find(text);
    const double score = -static_cast<double>(found != rank.end() ? found->second : rank.size());
    tokens.set(number, text, is_byte_token(text) ? GgufTokenType::byte : GgufTokenType::normal,
               is_byte_token(text) ? 0 : score);
  }
  set_added_tokens(folder, tokens);
  if (model.at("vocab").contains(unknown)) {
    tokens.set(model["vocab"][unknown].get<std::int64_t>(), unknown, GgufTokenType::unknown);
  }
  metadata.add("tokenizer.ggml.model", "llama");
  metadata.add("tokenizer.ggml.pre", "default");
  std::move(tokens).add_to(metadata, true);
  metadata.add("tokenizer.ggml.add_space_prefix", prepends_blank(folder.document().value("normalizer", Json())) ||
                                                      prepends_blank(folder.document().value("pre_tokenizer", Json())));
}

void add_byte_level_bpe(const TokenizerFolder& folder, TokenList tokens, GgufMetadata& metadata) {
  const std::string pre = gguf_pre_tokenizer_name(folder.document());
  if (pre.empty()) {
    fail(
        "{}: its pre_tokenizer and normalizer are none of those that GGUF has a name for: the model would be given "
        "other tokens",
        folder.file());
  }
  set_vocabulary(folder, tokens);
  set_added_tokens(folder, tokens);
  metadata.add("tokenizer.ggml.model", "gpt2");
  metadata.add("tokenizer.ggml.pre", pre);
  std::move(tokens).add_to(metadata, false);
  metadata.add("tokenizer.ggml.merges", merges_of(folder));
}

void add_sentencepiece(const TokenizerFolder& folder, TokenList tokens, GgufMetadata& metadata) {
  const std::string file = folder.path("tokenizer.model").string();
  const SentencePieceModel model = SentencePieceModel::parse(read_text_file(file), file);
  if (model.algorithm != SentencePieceModel::Algorithm::bpe) {
    fail("{}: is a unigram model; GGUF's llama tokenizer is BPE", file);
  }
  for (std::size_t id = 0; id < model.pieces.size(); ++id) {
    const auto& piece = model.pieces[id];
    const auto number = static_cast<std::int64_t>(id);
    if (!is_listed(tokens, number, piece.text, file)) continue;
    tokens.set(number, piece.text, static_cast<GgufTokenType>(piece.type), piece.score);
  }
  if (folder.settings().contains("added_tokens_decoder")) {
    for (const auto& [id, token] : folder.settings()["added_tokens_decoder"].items()) {
      std::int64_t number = -1;
      std::from_chars(id.data(), id.data() + id.size(), number);
      auto text = token.at("content").get<std::string>();
      if (text == model.unk_piece || !is_listed(tokens, number, text, file)) continue;
      tokens.set(number, std::move(text), added_type(token), -1000);
    }
  }
  metadata.add("tokenizer.ggml.model", "llama");
  metadata.add("tokenizer.ggml.pre", "default");
  std::move(tokens).add_to(metadata, true);
  metadata.add("tokenizer.ggml.add_space_prefix", model.normalizer.add_dummy_prefix);
}

/// "bos_token": a text, or an object with "content".
std::optional<std::int32_t> named_token(const Json& settings, const char* key, const Tokenizer& tokenizer) {
  if (!settings.contains(key)) return std::nullopt;
  const Json& name = settings[key].is_object() ? settings[key].value("content", Json()) : settings[key];
  return name.is_string() ? tokenizer.token_to_id(name.get_ref<const std::string&>()) : std::nullopt;
}

/// What the tokenizer puts around a text: GGUF can say one token on each side.
struct Around {
  std::optional<std::int32_t> before, behind;
};

Around tokens_around(const TokenizerFolder& folder, const Tokenizer& tokenizer) {
  const auto plain = tokenizer.encode("a", false), whole = tokenizer.encode("a", true);
  const auto found = std::search(whole.begin(), whole.end(), plain.begin(), plain.end());
  const auto before = found - whole.begin();
  const auto behind = static_cast<std::ptrdiff_t>(whole.size() - plain.size()) - before;
  if (before > 1 || behind > 1 || behind < 0) {
    fail("{}: puts {} tokens around a text; GGUF can say one before and one behind", folder.file(),
         whole.size() - plain.size());
  }
  Around around;
  if (before == 1) around.before = whole.front();
  if (behind == 1) around.behind = whole.back();
  return around;
}

void add_special_ids(const TokenizerFolder& folder, const Tokenizer& tokenizer, const ModelConfig& config,
                     GgufMetadata& metadata) {
  const auto add = [&](const char* key, std::optional<std::int32_t> id) {
    if (!id || *id < 0 || *id >= config.vocab_size) return;
    metadata.add(fmt::format("tokenizer.ggml.{}_token_id", key), static_cast<std::uint64_t>(*id));
  };
  const auto either = [](auto first, auto second) { return first ? first : second; };
  const Around around = tokens_around(folder, tokenizer);
  const auto first_end = config.eos_token_ids.empty() ? std::nullopt : std::optional(config.eos_token_ids.front());
  const auto eos = either(around.behind, either(tokenizer.eos_id(), first_end));
  add("bos", either(around.before, either(tokenizer.bos_id(), config.bos_token_id)));
  add("eos", eos);
  // GGUF has a name for one more token that ends a turn; llama.cpp finds others by their texts.
  const auto other = std::find_if(config.eos_token_ids.begin(), config.eos_token_ids.end(),
                                  [&](std::int32_t id) { return id != eos; });
  if (other != config.eos_token_ids.end()) add("eot", *other);
  add("unknown", named_token(folder.settings(), "unk_token", tokenizer));
  add("padding", named_token(folder.settings(), "pad_token", tokenizer));
  add("seperator", named_token(folder.settings(), "sep_token", tokenizer));  // so spelled in GGUF
  add("mask", named_token(folder.settings(), "mask_token", tokenizer));
  metadata.add("tokenizer.ggml.add_bos_token", around.before.has_value());
  metadata.add("tokenizer.ggml.add_eos_token", around.behind.has_value());
}

void add_chat_templates(const TokenizerFolder& folder, GgufMetadata& metadata) {
  constexpr const char* kKey = "tokenizer.chat_template";
  if (folder.has("chat_template.jinja")) {
    return metadata.add(kKey, read_text_file(folder.path("chat_template.jinja")));
  }
  const Json from_file = folder.has("chat_template.json") ? read_json_file(folder.path("chat_template.json")) : Json();
  const Json& source = from_file.is_object() ? from_file : folder.settings();
  if (!source.contains("chat_template")) return;
  const Json& given = source["chat_template"];
  if (given.is_string()) return metadata.add(kKey, given.get<std::string>());
  std::vector<std::string> names;
  for (const Json& one : given) {
    const auto name = one.at("name").get<std::string>();
    if (name != "default") names.push_back(name);
    metadata.add(name == "default" ? kKey : fmt::format("{}.{}", kKey, name), one.at("template").get<std::string>());
  }
  if (!names.empty()) metadata.add("tokenizer.chat_templates", names);
}

/// Merges that give the same token one after another are sorted: which of them comes first changes no text but runs of
/// one character, and tools that write merges from scores do not agree on it.
std::vector<std::string> in_one_order(std::vector<std::string> merges) {
  const auto merged = [](std::string merge) { return merge.erase(merge.find(' '), 1); };
  for (auto begin = merges.begin(); begin != merges.end();) {
    const auto end =
        std::find_if(begin, merges.end(), [&](const std::string& merge) { return merged(merge) != merged(*begin); });
    std::sort(begin, end);
    begin = end;
  }
  return merges;
}

/// Special tokens may take the blanks beside them with them, which GGUF has no key for.
void warn_of_stripping(const TokenizerFolder& folder, const Json& again) {
  std::unordered_map<std::string, bool> strips;
  for (const Json& token : again.at("added_tokens")) strips[token.at("content")] = token.at("rstrip").get<bool>();
  for (const Json& token : folder.document().at("added_tokens")) {
    const auto text = token.at("content").get<std::string>();
    const auto found = strips.find(text);
    if (found == strips.end()) continue;
    if (token.value("lstrip", false) || token.value("rstrip", false) != found->second) {
      return warning("{}: token {} takes blanks beside it with it, which GGUF cannot say", folder.file(),
                     text_excerpt(text));
    }
  }
}

/// The keys say everything but the order of merges, which their reader takes from the scores.
void check_reads_back(const TokenizerFolder& folder, const GgufMetadata& metadata) {
  if (folder.document().is_null()) return;
  const Json again = gguf_tokenizer_document(metadata);
  std::vector<std::string> merges;
  for (const Json& merge : again.at("model").at("merges")) merges.push_back(merge.get<std::string>());
  if (in_one_order(std::move(merges)) != in_one_order(merges_of(folder))) {
    fail("{}: its merges are not in the order of scores, which is all that GGUF can say of them", folder.file());
  }
  if (folder.document().contains("added_tokens")) warn_of_stripping(folder, again);
}

void add_vocabulary(const TokenizerFolder& folder, const ModelConfig& config, GgufMetadata& metadata) {
  TokenList tokens(config.vocab_size);
  const bool is_bpe = folder.model_type() == "BPE";
  const bool has_byte_fallback = is_bpe && folder.document()["model"].value("byte_fallback", false);
  if (is_bpe && !has_byte_fallback) return add_byte_level_bpe(folder, std::move(tokens), metadata);
  if (folder.has("tokenizer.model")) return add_sentencepiece(folder, std::move(tokens), metadata);
  if (is_bpe) return add_scored_bpe(folder, std::move(tokens), metadata);
  fail("{}: its model is {}; GGUF can hold BPE", folder.file(), folder.model_type());
}

}  // namespace

void add_gguf_tokenizer_keys(const fs::path& folder_path, const ModelConfig& config, GgufMetadata& metadata) {
  if (!fs::exists(folder_path / "tokenizer.json") && !fs::exists(folder_path / "tokenizer.model") &&
      !fs::exists(folder_path / "vocab.json")) {
    return warning("{}: has no tokenizer; the GGUF file will have none", folder_path.string());
  }
  const auto tokenizer = Tokenizer::load(folder_path);  // which checks the files
  try {
    const TokenizerFolder folder(folder_path);
    add_vocabulary(folder, config, metadata);
    add_special_ids(folder, *tokenizer, config, metadata);
    add_chat_templates(folder, metadata);
    check_reads_back(folder, metadata);
  } catch (const Json::exception& error) {
    fail("{}: a tokenizer file is malformed: {}", folder_path.string(), text_excerpt(error.what(), 200));
  }
}

}  // namespace heddle
