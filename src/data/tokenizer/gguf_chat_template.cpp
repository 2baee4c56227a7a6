#include "data/tokenizer/gguf_chat_template.h"

#include <string_view>
#include <utility>

#include "data/tokenizer/gguf_tokenizer.h"
#include "formats/gguf.h"

namespace heddle {

std::optional<ChatTemplate> load_gguf_chat_template(const std::filesystem::path& path) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  const GgufFile file(path);
  if (!file.metadata().has(kKey)) return std::nullopt;
  Json variables = Json::object();
  const Json config = gguf_tokenizer_config(file.metadata());
  for (const auto& [key, value] : config.items()) {
    if (key.ends_with("_token")) variables[key] = value;
  }
  return ChatTemplate(file.metadata().text(kKey), path.string() + ": " + std::string(kKey), std::move(variables));
}

}  // namespace heddle
