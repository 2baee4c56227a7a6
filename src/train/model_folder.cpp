#include "train/model_folder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "checkpoint/agreement.h"
#include "data/tokenizer/gguf_tokenizer.h"
#include "formats/files.h"
#include "formats/gguf.h"
#include "formats/json.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr std::array kCompanions = {"tokenizer.json",
                                    "tokenizer_config.json",
                                    "special_tokens_map.json",
                                    "tokenizer.model",
                                    "vocab.json",
                                    "merges.txt",
                                    "added_tokens.json",
                                    "chat_template.jinja",
                                    "chat_template.json",
                                    "generation_config.json"};

std::string config_with_dtype(const ModelSource& model, const std::string& torch_dtype) {
  Json config = parse_json(model.config_text, model.config_path.string());
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = torch_dtype;
  return config.dump(2) + "\n";
}

std::string utf8_of(char32_t code) {
  std::string text;
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else {  // all that byte-level tokenizers use lies below U+0800
    text += static_cast<char>(0xC0 | (code >> 6));
    text += static_cast<char>(0x80 | (code & 0x3F));
  }
  return text;
}

/// The byte tokenizer as a tokenizer.json: byte-level BPE without merges, so that other tools give the same ids.
Json byte_tokenizer_json() {
  Json vocabulary = Json::object();
  char32_t next = 256;  // GPT-2's visible stand-ins for bytes that do not print
  for (int byte = 0; byte < 256; ++byte) {
    const bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    vocabulary[utf8_of(prints ? static_cast<char32_t>(byte) : next++)] = byte;
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  const Json end_of_text = {{"id", 256},       {"content", "<|endoftext|>"}, {"single_word", false}, {"lstrip", false},
                            {"rstrip", false}, {"normalized", false},        {"special", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", Json::array({end_of_text})},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocabulary},
            {"merges", Json::array()}}}};
}

using Files = std::vector<KeptFile>;

/// In place of a file of that name, if there is one.
void add(Files& files, KeptFile file) {
  const auto found =
      std::find_if(files.begin(), files.end(), [&](const auto& other) { return other.name == file.name; });
  if (found != files.end()) {
    *found = std::move(file);
  } else {
    files.push_back(std::move(file));
  }
}

void add_companions(Files& files, const fs::path& folder) {
  for (const char* name : kCompanions) {
    if (fs::is_regular_file(folder / name)) add(files, {name, folder / name, ""});
  }
}

void add_byte_tokenizer(Files& files) {
  files.push_back({"tokenizer.json", "", byte_tokenizer_json().dump(1) + "\n"});
  const Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"eos_token", "<|endoftext|>"}};
  files.push_back({"tokenizer_config.json", "", config.dump(2) + "\n"});
}

// Not fs::copy_file, which takes a file's permissions along: a copy of a read-only file cannot be written over.
void copy_to(const fs::path& file, const fs::path& target) {
  std::error_code error;
  if (!fs::equivalent(file, target, error)) write_text_file(target, read_text_file(file));
}

}  // namespace

Files model_files(const ModelSource& model, const std::string& tokenizer_name,
                  const std::optional<std::string>& torch_dtype) {
  Files files;
  if (tokenizer_name == "bytes") {
    add_byte_tokenizer(files);
  } else {
    if (model.is_gguf) {
      for (auto& file : gguf_tokenizer_files(GgufFile(model.folder).metadata())) add(files, {file.name, "", file.text});
    } else {
      add_companions(files, model.folder);
    }
    if (model.tokenizer_folder != model.folder) add_companions(files, model.tokenizer_folder);
    if (fs::is_directory(tokenizer_name)) {
      add_companions(files, tokenizer_name);
    } else if (!tokenizer_name.empty()) {
      const bool is_sentencepiece = fs::path(tokenizer_name).extension() == ".model";
      add(files, {is_sentencepiece ? "tokenizer.model" : "tokenizer.json", tokenizer_name, ""});
    }
  }
  files.push_back({"config.json", "", torch_dtype ? config_with_dtype(model, *torch_dtype) : model.config_text});
  return files;
}

Files adapter_files(const ModelSource& model, const std::string& tokenizer_name, const LoraModules& adapter) {
  Files files = model_files(model, tokenizer_name, std::nullopt);
  std::erase_if(
      files, [](const KeptFile& file) { return file.name == "config.json" || file.name == "generation_config.json"; });
  files.push_back({"adapter_config.json", "", adapter_config_text(adapter.config())});
  return files;
}

Files companion_files(const fs::path& folder) {
  Files files;
  add_companions(files, folder);
  if (fs::is_regular_file(folder / "config.json")) files.push_back({"config.json", folder / "config.json", ""});
  return files;
}

void write_model_files(const fs::path& folder, const Files& files) {
  make_folder(folder);
  for (const auto& file : files) {
    if (file.source.empty()) {
      write_text_file(folder / file.name, file.text);
    } else {
      copy_to(file.source, folder / file.name);
    }
  }
}

void export_model(const fs::path& folder, const Files& files, const WeightSource& weights, const Parameters& parameters,
                  const Sharding& sharding, const Executor& executor, const std::optional<std::string>& torch_dtype,
                  const WeightFiles* base, Communicator& communicator) {
  std::optional<DType> dtype;
  if (torch_dtype) dtype = dtype_from_torch(*torch_dtype);
  agree(communicator, [&] {
    if (communicator.rank() == 0) make_folder(folder);
  });
  export_weights(folder, weights, parameters, sharding, executor, dtype, base, communicator);
  agree(communicator, [&] {
    if (communicator.rank() == 0) write_model_files(folder, files);
  });
}

}  // namespace heddle
