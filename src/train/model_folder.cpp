#include "train/model_folder.h"

#include "base/error.h"
#include "formats/files.h"
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

void copy_to(const fs::path& file, const fs::path& target) {
  std::error_code error;
  if (fs::equivalent(file, target, error)) return;
  fs::copy_file(file, target, fs::copy_options::overwrite_existing, error);
  if (error) fail("{}: cannot be copied to {}: {}", file.string(), target.string(), error.message());
}

void copy_companions(const fs::path& from, const fs::path& to) {
  for (const auto& file : companion_files(from)) copy_to(file, to / file.filename());
}

}  // namespace

std::vector<fs::path> companion_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const char* name : kCompanions) {
    if (fs::is_regular_file(folder / name)) files.push_back(folder / name);
  }
  return files;
}

void export_model(const fs::path& folder, const ModelSource& model, const std::string& tokenizer_name,
                  const WeightSource& weights, const Parameters& parameters, const Executor& executor,
                  const std::optional<std::string>& torch_dtype) {
  make_folder(folder);
  std::optional<DType> dtype;
  if (torch_dtype) dtype = dtype_from_torch(*torch_dtype);
  if (tokenizer_name == "bytes") {
    write_text_file(folder / "tokenizer.json", byte_tokenizer_json().dump(1) + "\n");
    write_text_file(
        folder / "tokenizer_config.json",
        Json{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"eos_token", "<|endoftext|>"}}.dump(2) + "\n");
  } else {
    copy_companions(model.folder, folder);
    if (fs::is_directory(tokenizer_name)) {
      copy_companions(tokenizer_name, folder);
    } else if (!tokenizer_name.empty()) {
      copy_to(tokenizer_name, folder / "tokenizer.json");
    }
  }
  export_weights(folder, weights, parameters, executor, dtype);
  write_text_file(folder / "config.json", torch_dtype ? config_with_dtype(model, *torch_dtype) : model.config_text);
}

}  // namespace heddle
