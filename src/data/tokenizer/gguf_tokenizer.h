#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.h"
#include "formats/gguf_metadata.h"
#include "formats/json.h"

namespace heddle {

/// The tokenizer.json that says what tokenizer.ggml.* says: byte-level BPE ("gpt2") with the pre-tokenizer that
/// tokenizer.ggml.pre names, or SentencePiece's BPE with scores and bytes ("llama"), its merges in the order that
/// transformers' converter gives them. Throws Error naming the key for other models and unknown pre-tokenizers.
Json gguf_tokenizer_document(const GgufMetadata& metadata);

/// The tokenizer_config.json beside it: special tokens by name and the chat templates. Without a tokenizer the
/// templates alone.
Json gguf_tokenizer_config(const GgufMetadata& metadata);

/// A file of a model folder.
struct TokenizerFile {
  std::string name, text;
};
/// Both, as files for other tools; none where the metadata has no tokenizer.
std::vector<TokenizerFile> gguf_tokenizer_files(const GgufMetadata& metadata);

/// The tokenizer of a GGUF file; null where it has none.
std::unique_ptr<Tokenizer> load_gguf_tokenizer(const std::filesystem::path& path);

}  // namespace heddle
