#include "data/chat_template.h"

#include <array>

#include <xxhash.h>

#include "base/error.h"
#include "data/jinja/template.h"
#include "formats/files.h"

namespace heddle {
namespace {

/// What a template calls a message's reasoning, the standard name first.
constexpr std::array<std::string_view, 3> kReasoning = {"reasoning_content", "thinking", "reasoning"};

const Json* member(const Json& object, std::string_view key) {
  const auto at = object.find(key);
  return at != object.end() && !at->is_null() ? &*at : nullptr;
}

/// A message as apply_chat_template passes it on: without keys whose value is null, and with its reasoning under the
/// standard names.
Json normal_message(const Json& message) {
  if (!message.is_object()) fail("a message is {}; expected an object with role and content", json_excerpt(message));
  const Json* reasoning = nullptr;
  for (const auto name : kReasoning) {
    if (reasoning == nullptr) reasoning = member(message, name);
  }
  Json normal = Json::object();
  if (reasoning != nullptr) normal["thinking"] = *reasoning;
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) normal[key] = value;
  }
  if (reasoning != nullptr) normal["reasoning_content"] = *reasoning;
  return normal;
}

bool is_normal(const Json& message) {
  if (!message.is_object()) return false;
  for (const auto& [key, value] : message.get_ref<const Json::object_t&>()) {
    if (value.is_null() || key == kReasoning[0] || key == kReasoning[1] || key == kReasoning[2]) return false;
  }
  return true;
}

/// `normal` holds what had to be changed.
const Json& normal_messages(const Json& messages, Json& normal) {
  if (!messages.is_array()) fail("messages is {}; expected an array", json_excerpt(messages));
  if (messages.empty()) fail("messages is empty; expected at least one message");
  bool are_normal = true;
  for (const Json& message : messages) are_normal = are_normal && is_normal(message);
  if (are_normal) return messages;
  normal = Json::array();
  for (const Json& message : messages) normal.push_back(normal_message(message));
  return normal;
}

}  // namespace

ChatTemplate::ChatTemplate(std::string source, std::string name, Json variables)
    : default_(std::make_shared<jinja::Template>(source, std::move(name))),
      variables_(std::move(variables)),
      sources_(std::move(source)) {}

std::string ChatTemplate::fingerprint() const {
  const std::string all = sources_ + '\0' + variables_.dump(-1, ' ', false, Json::error_handler_t::replace);
  const XXH128_hash_t hash = XXH3_128bits(all.data(), all.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

bool ChatTemplate::reads_clock() const { return sources_.find("strftime_now") != std::string::npos; }

bool ChatTemplate::marks_generation() const {
  return default_->marks_generation() || (tool_use_ && tool_use_->marks_generation());
}

ChatTemplate::Rendering ChatTemplate::render(const Json& messages, const Json& tools, const Json& variables,
                                             bool add_generation_prompt) const {
  Json changed;
  const Json& conversation = normal_messages(messages, changed);
  const Json prompt = add_generation_prompt, nothing;
  std::vector<jinja::Passed> passed = {
      {"messages", &conversation}, {"tools", &tools}, {"documents", &nothing}, {"add_generation_prompt", &prompt}};
  for (const Json* more : {&variables_, &variables}) {
    if (more->is_null()) continue;
    if (!more->is_object()) fail("the template's variables are {}; expected an object", json_excerpt(*more));
    for (const auto& [key, value] : more->get_ref<const Json::object_t&>()) passed.push_back({key, &value});
  }
  const bool has_tools = !tools.is_null() && tool_use_ != nullptr;
  auto rendering = (has_tools ? tool_use_ : default_)->render(passed);
  return {std::move(rendering.text), std::move(rendering.generated)};
}

namespace {

constexpr std::array<const char*, 7> kSpecialTokens = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                       "pad_token", "cls_token", "mask_token"};

/// The special tokens of a tokenizer_config.json: texts, or objects with `content`.
Json special_tokens(const Json& config) {
  Json tokens = Json::object();
  for (const char* name : kSpecialTokens) {
    const Json* token = member(config, name);
    if (token != nullptr && token->is_object()) token = member(*token, "content");
    if (token != nullptr && token->is_string()) tokens[name] = *token;
  }
  return tokens;
}

struct Sources {
  std::optional<std::string> standard, tool_use;
  std::string name;
};

/// The value of the key chat_template, in whichever file: a text, or a list of named ones.
void read_sources(const Json& value, const std::string& name, Sources& sources) {
  sources.name = name;
  if (value.is_string()) {
    sources.standard = value.get<std::string>();
    return;
  }
  if (!value.is_array()) fail("{}: chat_template is {}; expected a text or a list", name, json_excerpt(value));
  for (const Json& entry : value) {
    const Json* title = entry.is_object() ? member(entry, "name") : nullptr;
    const Json* text = entry.is_object() ? member(entry, "template") : nullptr;
    if (title == nullptr || text == nullptr || !title->is_string() || !text->is_string()) {
      fail("{}: chat_template has the entry {}; expected name and template", name, json_excerpt(entry));
    }
    if (*title == "default") sources.standard = text->get<std::string>();
    if (*title == "tool_use") sources.tool_use = text->get<std::string>();
  }
  if (!sources.standard) fail("{}: chat_template has no template named default", name);
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::of_folder(const std::filesystem::path& folder) {
  const auto config_path = folder / "tokenizer_config.json";
  Json config = Json::object();
  if (std::filesystem::exists(config_path)) config = read_json_file(config_path);
  if (!config.is_object()) fail("{}: expected an object", config_path.string());

  Sources sources;
  const auto jinja_path = folder / "chat_template.jinja", json_path = folder / "chat_template.json";
  if (std::filesystem::exists(jinja_path)) {
    sources = {read_text_file(jinja_path), std::nullopt, jinja_path.string()};
    const auto tools_path = folder / "additional_chat_templates" / "tool_use.jinja";
    if (std::filesystem::exists(tools_path)) sources.tool_use = read_text_file(tools_path);
  } else if (std::filesystem::exists(json_path)) {
    const Json document = read_json_file(json_path);
    const Json* value = document.is_object() ? member(document, "chat_template") : nullptr;
    if (value == nullptr) fail("{}: there is no chat_template", json_path.string());
    read_sources(*value, json_path.string(), sources);
  } else if (const Json* value = member(config, "chat_template")) {
    read_sources(*value, config_path.string() + ": chat_template", sources);
  } else {
    return std::nullopt;
  }
  ChatTemplate result(std::move(*sources.standard), sources.name, special_tokens(config));
  if (sources.tool_use) {
    result.sources_ += '\0' + *sources.tool_use;
    result.tool_use_ = std::make_shared<jinja::Template>(*sources.tool_use, sources.name + " (tool_use)");
  }
  return result;
}

}  // namespace heddle
