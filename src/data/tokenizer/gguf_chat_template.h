#pragma once

#include <filesystem>
#include <optional>

#include "data/chat_template.h"

namespace heddle {

/// The chat template of a GGUF file, with the special tokens of its tokenizer as variables; none where it has none. Of
/// several it is the one without a name.
std::optional<ChatTemplate> load_gguf_chat_template(const std::filesystem::path& path);

}  // namespace heddle
