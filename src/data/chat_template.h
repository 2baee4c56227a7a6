#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/json.h"

namespace heddle {

namespace jinja {
class Template;
}

/// A model's chat template: Jinja, rendered as transformers' apply_chat_template renders it. Parsed once; rendering is
/// const and may run on many threads at once.
class ChatTemplate {
 public:
  /// `name` is what error messages call the template; `variables` is an object: bos_token, eos_token, ...
  /// Throws Error "NAME:LINE: ..." where the source is no template.
  ChatTemplate(std::string source, std::string name, Json variables);

  /// The template of a folder as transformers finds it: chat_template.jinja, else chat_template.json, else the key
  /// chat_template of tokenizer_config.json (a text, or a list of {name, template}: "default" is taken, or "tool_use"
  /// for rows with tools). Its variables are the special tokens of tokenizer_config.json. None where there is none.
  static std::optional<ChatTemplate> of_folder(const std::filesystem::path& folder);

  struct Rendering {
    std::string text;
    /// Byte ranges [begin, end) of `text` that {% generation %} blocks wrote, in order.
    std::vector<std::pair<std::size_t, std::size_t>> generated;
  };

  /// `tools` is null where there are none; `variables` is an object (or null) and wins over the template's own.
  /// Throws Error where the template refuses the row; the text of raise_exception is part of it.
  Rendering render(const Json& messages, const Json& tools, const Json& variables, bool add_generation_prompt) const;

  /// The template has {% generation %} blocks.
  bool marks_generation() const;

  /// A digest of all that decides a rendering, but the row and the clock; part of the key of the token cache.
  std::string fingerprint() const;
  /// Renderings may depend on the clock: the template calls strftime_now.
  bool reads_clock() const;

 private:
  std::shared_ptr<const jinja::Template> default_;
  std::shared_ptr<const jinja::Template> tool_use_;  // null: `default_` serves rows with tools too
  Json variables_;
  std::string sources_;  // of both
};

}  // namespace heddle
