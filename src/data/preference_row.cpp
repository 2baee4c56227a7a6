#include "data/preference_row.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace heddle {
namespace {

bool is_messages(const Json& value) { return value.is_array() || value.is_object(); }

Json as_list(const Json& value) { return value.is_object() ? Json::array({value}) : value; }

/// What both texts begin with, without a space at its end, as TRL's extract_prompt; each keeps a character at least.
std::size_t common_text(std::string_view a, std::string_view b) {
  const std::size_t shorter = std::min(a.size(), b.size());
  auto end = static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(shorter), b.begin()).first - a.begin());
  if (end == shorter && end > 0) --end;
  const auto is_inside_character = [&](std::string_view text) {
    return end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80;
  };
  while (end > 0 && (is_inside_character(a) || is_inside_character(b))) --end;
  if (end > 0 && a[end - 1] == ' ') --end;
  return end;
}

class PreferenceReader {
 public:
  PreferenceReader(const RowFields& fields, bool has_chat_template)
      : fields_(fields), has_chat_template_(has_chat_template) {
    const bool is_plain = fields.has("chosen");
    chosen_name_ = is_plain ? "chosen" : "chosen_messages";
    rejected_name_ = is_plain ? "rejected" : "rejected_messages";
  }

  PreferenceRow read() && {
    const Json &chosen = answer(chosen_name_), &rejected = answer(rejected_name_);
    row_.used = {chosen_name_, rejected_name_};
    if (chosen.is_string() && rejected.is_string()) {
      read_texts(chosen, rejected);
    } else if (is_messages(chosen) && is_messages(rejected)) {
      read_conversations(as_list(chosen), as_list(rejected));
    } else {
      fail("{} is {} and {} is {}; expected two texts, or two lists of messages", chosen_name_,
           json_excerpt(chosen, 30), rejected_name_, json_excerpt(rejected, 30));
    }
    return std::move(row_);
  }

 private:
  const Json& answer(const char* name) const {
    const Json* value = fields_.find(name);
    if (value == nullptr) fail("{} is null; expected a text or a list of messages", name);
    return *value;
  }

  void read_texts(const std::string& chosen, const std::string& rejected) {
    const Json* prompt = fields_.find("prompt");
    if (prompt != nullptr) {
      if (!prompt->is_string())
        fail("prompt is {}, and {} a text; expected texts or lists of messages", json_excerpt(*prompt), chosen_name_);
      row_.used.emplace_back("prompt");
      row_.chosen_text = {prompt->get<std::string>(), chosen};
      row_.rejected_text = {prompt->get<std::string>(), rejected};
    } else if (fields_.find("instruction") != nullptr) {
      for (const char* name : {"instruction", "input", "history", "system", "tools", "chat_template_kwargs"})
        row_.used.emplace_back(name);
      if (has_chat_template_) {
        row_.chosen = read_alpaca(fields_, chosen_name_);
        row_.rejected = read_alpaca(fields_, rejected_name_);
      } else {
        row_.chosen_text = alpaca_texts(fields_, chosen_name_);
        row_.rejected_text = alpaca_texts(fields_, rejected_name_);
      }
    } else {
      const std::size_t end = common_text(chosen, rejected);
      row_.chosen_text = {chosen.substr(0, end), chosen.substr(end)};
      row_.rejected_text = {rejected.substr(0, end), rejected.substr(end)};
    }
  }

  /// The field that holds the prompt's messages; null: the answers do.
  const char* prompt_field(std::size_t answers) const {
    const auto is_list = [&](const char* name) {
      const Json* value = fields_.find(name);
      return value != nullptr && value->is_array();
    };
    if (is_list("prompt")) return "prompt";
    if (answers > 1) return nullptr;  // whole conversations
    return is_list("messages") ? "messages" : is_list("conversations") ? "conversations" : nullptr;
  }

  void read_conversations(Json chosen, Json rejected) {
    for (const auto& [name, list] : {std::pair{chosen_name_, &chosen}, {rejected_name_, &rejected}})
      if (list->empty()) fail("{} is empty; expected at least one message", name);
    for (const char* name : {"system", "tools", "chat_template_kwargs"}) row_.used.emplace_back(name);
    std::size_t prompt_messages = 0;
    if (const char* name = prompt_field(std::max(chosen.size(), rejected.size())); name != nullptr) {
      row_.used.emplace_back(name);
      const Json& prompt = *fields_.find(name);
      prompt_messages = prompt.size();
      chosen.insert(chosen.begin(), prompt.begin(), prompt.end());
      rejected.insert(rejected.begin(), prompt.begin(), prompt.end());
    } else {
      const std::size_t shorter = std::min(chosen.size(), rejected.size());
      while (prompt_messages < shorter && chosen[prompt_messages] == rejected[prompt_messages]) ++prompt_messages;
      if (prompt_messages == shorter && prompt_messages > 0) --prompt_messages;  // an answer has a message at least
      if (prompt_messages == 0)
        fail("{} and {} have no first message in common; expected a prompt in both, or in a field prompt", chosen_name_,
             rejected_name_);
    }
    row_.chosen = conversation(chosen, chosen_name_, prompt_messages);
    row_.rejected = conversation(rejected, rejected_name_, prompt_messages);
  }

  /// The answer's messages are what is learnt, whatever weights they carry.
  Conversation conversation(const Json& messages, const char* name, std::size_t prompt_messages) const {
    bool is_sharegpt = false;
    Conversation out = read_messages(fields_, messages, name, is_sharegpt);
    out.prompt_messages = out.messages.size() - (messages.size() - prompt_messages);  // with a system message before
    out.weights.assign(out.messages.size(), std::nullopt);
    return out;
  }

  const RowFields& fields_;
  bool has_chat_template_;
  const char *chosen_name_, *rejected_name_;
  PreferenceRow row_;
};

}  // namespace

PreferenceRow read_preference(const RowFields& fields, bool has_chat_template) {
  return PreferenceReader(fields, has_chat_template).read();
}

}  // namespace heddle
