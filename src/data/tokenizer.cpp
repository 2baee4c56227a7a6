#include "data/tokenizer.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "data/tokenizer/gpt2_files.h"
#include "data/tokenizer/hash.h"
#include "data/tokenizer/hugging_face.h"
#include "data/tokenizer/json_entry.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

std::string read_text(const fs::path& path) {
  constexpr std::uintmax_t most = std::uintmax_t{256} << 20;
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error) fail("{}: {}", path.string(), error.message());
  if (size > most) fail("{} has {} bytes; expected at most {}", path.string(), size, most);
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) fail("{} cannot be read", path.string());
  return text;
}

std::string digest(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::unique_ptr<HuggingFaceTokenizer> load_tokenizer_json(const fs::path& path) {
  const std::string text = read_text(path);
  const Json document = parse_json(text, path.string());
  return std::make_unique<HuggingFaceTokenizer>(JsonEntry(document, path.string()), digest(text));
}

std::unique_ptr<HuggingFaceTokenizer> load_gpt2_files(const fs::path& folder) {
  const fs::path vocab = folder / "vocab.json", merges = folder / "merges.txt";
  const std::string vocab_text = read_text(vocab), merges_text = read_text(merges);
  const Json document = make_gpt2_document(parse_json(vocab_text, vocab.string()), merges_text);
  return std::make_unique<HuggingFaceTokenizer>(JsonEntry(document, fmt::format("{}, merges.txt", vocab.string())),
                                                digest(digest(vocab_text) + digest(merges_text)));
}

/// Reads what the files of a folder say, the first that speaks of a token deciding: tokenizer_config.json,
/// special_tokens_map.json (names), generation_config.json, config.json (ids).
class SpecialTokenReader {
 public:
  SpecialTokenReader(const fs::path& folder, const Tokenizer& tokenizer) : folder_(folder), tokenizer_(tokenizer) {}

  SpecialTokens read() {
    read_file("tokenizer_config.json", [this](const JsonEntry& file) {
      read_names(file);
      if (const auto flag = file.find("add_bos_token")) found_.add_bos_token = flag->boolean();
      if (const auto flag = file.find("add_eos_token")) found_.add_eos_token = flag->boolean();
    });
    read_file("special_tokens_map.json", [this](const JsonEntry& file) { read_names(file); });
    for (const char* name : {"generation_config.json", "config.json"}) {
      if (found_.bos_id && found_.eos_id) break;
      read_file(name, [this](const JsonEntry& file) { read_ids(file); });
    }
    return found_;
  }

 private:
  template <typename Read>
  void read_file(const char* name, Read read) {
    const fs::path path = folder_ / name;
    if (!fs::exists(path)) return;
    const Json document = read_json_file(path);
    const JsonEntry entry(document, path.string());
    entry.require_object();
    read(entry);
  }

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

std::unique_ptr<HuggingFaceTokenizer> load_folder(const fs::path& folder) {
  if (fs::exists(folder / "tokenizer.json")) return load_tokenizer_json(folder / "tokenizer.json");
  if (fs::exists(folder / "vocab.json") && fs::exists(folder / "merges.txt")) return load_gpt2_files(folder);
  if (fs::exists(folder / "tokenizer.model")) {
    fail("{}: SentencePiece files are not read yet; expected tokenizer.json beside it",
         (folder / "tokenizer.model").string());
  }
  fail("{}: tokenizer.json is missing", folder.string());
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  if (!fs::exists(path)) fail("{}: no such file or folder; expected tokenizer.json or a model folder", path.string());
  if (!fs::is_directory(path)) return load_tokenizer_json(path);
  auto tokenizer = load_folder(path);
  tokenizer->set_special_tokens(SpecialTokenReader(path, *tokenizer).read());
  return tokenizer;
}

}  // namespace heddle
