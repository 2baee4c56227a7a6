#pragma once

#include <filesystem>

#include "formats/gguf_metadata.h"
#include "models/model_config.h"

namespace heddle {

/// Adds tokenizer.ggml.* and the chat template as llama.cpp's converter has them, from the tokenizer files of a model
/// folder: tokenizer.json with byte-level BPE ("gpt2") or BPE with bytes for unknown characters ("llama"), or
/// tokenizer.model. The list is filled up to the model's vocabulary. Adds nothing where the folder has no tokenizer.
/// Throws Error naming the file for tokenizers that GGUF has no name for, and where reading the keys back would give
/// other ids.
void add_gguf_tokenizer_keys(const std::filesystem::path& folder, const ModelConfig& config, GgufMetadata& metadata);

}  // namespace heddle
