#include "data/tokenizer.h"

#include <utility>

#include "base/error.h"
#include "data/tokenizer/gguf_tokenizer.h"
#include "data/tokenizer/gpt2_files.h"
#include "data/tokenizer/hash.h"
#include "data/tokenizer/hugging_face.h"
#include "data/tokenizer/json_entry.h"
#include "data/tokenizer/sentencepiece_tokenizer.h"
#include "data/tokenizer/special_tokens.h"
#include "formats/file_kind.h"
#include "formats/files.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

std::string digest(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::unique_ptr<HuggingFaceTokenizer> load_tokenizer_json(const fs::path& path, const AddedTokenLists& lists) {
  const std::string text = read_text_file(path);
  const Json document = parse_json(text, path.string());
  return std::make_unique<HuggingFaceTokenizer>(JsonEntry(document, path.string()), digest(digest(text) + lists.text()),
                                                lists);
}

std::unique_ptr<HuggingFaceTokenizer> load_gpt2_files(const fs::path& folder) {
  const fs::path vocab = folder / "vocab.json", merges = folder / "merges.txt";
  const std::string vocab_text = read_text_file(vocab), merges_text = read_text_file(merges);
  const Json document = make_gpt2_document(parse_json(vocab_text, vocab.string()), merges_text);
  return std::make_unique<HuggingFaceTokenizer>(JsonEntry(document, fmt::format("{}, merges.txt", vocab.string())),
                                                digest(digest(vocab_text) + digest(merges_text)));
}

std::unique_ptr<SentencePieceTokenizer> load_sentencepiece(const fs::path& path, const TokenizerSettings& settings) {
  const std::string bytes = read_text_file(path);
  return std::make_unique<SentencePieceTokenizer>(SentencePieceModel::parse(bytes, path.string()), settings,
                                                  path.string(), digest(bytes));
}

template <typename Loaded>
std::unique_ptr<Tokenizer> with_special_tokens(std::unique_ptr<Loaded> tokenizer, const fs::path& folder) {
  tokenizer->set_special_tokens(read_special_tokens(folder, *tokenizer));
  return tokenizer;
}

std::unique_ptr<Tokenizer> load_folder(const fs::path& folder) {
  using Beside = TokenizerSettings::Beside;
  const auto has = [&folder](const char* name) { return fs::exists(folder / name); };
  if (has("tokenizer.json")) {
    const TokenizerSettings settings = TokenizerSettings::read(folder, Beside::tokenizer_json);
    return with_special_tokens(load_tokenizer_json(folder / "tokenizer.json", settings), folder);
  }
  if (has("vocab.json") && has("merges.txt")) return with_special_tokens(load_gpt2_files(folder), folder);
  if (has("tokenizer.model")) {
    const TokenizerSettings settings = TokenizerSettings::read(folder, Beside::sentencepiece);
    return with_special_tokens(load_sentencepiece(folder / "tokenizer.model", settings), folder);
  }
  fail("{}: tokenizer.json is missing; expected it, vocab.json and merges.txt, or tokenizer.model", folder.string());
}

}  // namespace

std::unique_ptr<Tokenizer> Tokenizer::load(const std::filesystem::path& path) {
  if (!fs::exists(path)) {
    fail("{}: no such file or folder; expected tokenizer.json, tokenizer.model, a GGUF file or a model folder",
         path.string());
  }
  if (fs::is_directory(path)) return load_folder(path);
  if (is_gguf_file(path)) {
    auto tokenizer = load_gguf_tokenizer(path);
    if (!tokenizer) fail("{}: has no tokenizer.ggml.model; expected a GGUF file with a tokenizer", path.string());
    return tokenizer;
  }
  if (path.extension() == ".model") return load_sentencepiece(path, {});
  return load_tokenizer_json(path, {});
}

}  // namespace heddle
