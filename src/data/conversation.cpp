#include "data/conversation.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

/// What each format calls a role, and what templates do: ShareGPT's names as FastChat, axolotl and LLaMA-Factory write
/// them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 15> kShareGptRoles = {{
    {"human", "user"},
    {"user", "user"},
    {"gpt", "assistant"},
    {"assistant", "assistant"},
    {"model", "assistant"},
    {"bot", "assistant"},
    {"chatgpt", "assistant"},
    {"bing", "assistant"},
    {"bard", "assistant"},
    {"system", "system"},
    {"tool", "tool"},
    {"observation", "tool"},
    {"function_response", "tool"},
    {"function_call", "assistant"},
    {"developer", "developer"},
}};
constexpr std::array<std::string_view, 4> kWeightKeys = {"weight", "loss_weight", "train", "training"};

/// A place in the row, as "messages[2]".
using Place = std::string;

std::string text_of(const Json& object, const char* key, const Place& place) {
  const auto found = object.find(key);
  if (found == object.end()) fail("{} has no {}", place, key);
  if (!found->is_string()) fail("{}.{} is {}; expected a string", place, key, json_excerpt(*found));
  return found->get<std::string>();
}

/// Text of a field of the row; "" where it is absent or null.
std::string text_field(const RowFields& fields, const char* name) {
  const Json* value = fields.find(name);
  if (value == nullptr) return "";
  if (!value->is_string()) fail("{} is {}; expected a string", name, json_excerpt(*value));
  return value->get<std::string>();
}

Json message(std::string_view role, std::string content) { return {{"role", role}, {"content", std::move(content)}}; }

/// {"name", "arguments"} as templates expect a tool call.
Json tool_call(const Json& call, const Place& place) {
  if (!call.is_object() || !call.contains("name") || !call.contains("arguments")) {
    fail("{} is {}; expected a call {{\"name\", \"arguments\"}}", place, json_excerpt(call));
  }
  return {{"type", "function"}, {"function", {{"name", call.at("name")}, {"arguments", call.at("arguments")}}}};
}

/// Calls written as JSON in a text: one, or a list of them.
void add_tool_calls(const std::string& text, const Place& place, Json& calls) {
  const Json parsed = parse_json(text, place);
  if (!parsed.is_array()) return calls.push_back(tool_call(parsed, place));
  for (const Json& call : parsed) calls.push_back(tool_call(call, place));
}

/// LLaMA-Factory's content, a list of {"type", "value"}: text, reasoning and calls.
void read_valued_parts(const Json& parts, const Place& place, Json& out) {
  std::string text, reasoning;
  Json calls = Json::array();
  for (const Json& part : parts) {
    const std::string type = text_of(part, "type", place + ".content"),
                      value = text_of(part, "value", place + ".content");
    if (type == "text") {
      text += value;
    } else if (type == "reasoning") {
      reasoning += value;
    } else if (type == "tool_call") {
      add_tool_calls(value, place + ".content", calls);
    } else {
      fail("{}: content of type {}; expected text, reasoning or tool_call", place, text_excerpt(type));
    }
  }
  out["content"] = text;
  if (!reasoning.empty()) out["reasoning_content"] = reasoning;
  if (!calls.empty()) out["tool_calls"] = calls;
}

void check_content(const Json& in, const Place& place) {
  const auto content = in.find("content");
  const bool may_lack = in.contains("tool_calls") || in.contains("function_call") || in.contains("reasoning_content");
  if (content == in.end() || content->is_null()) {
    if (!may_lack) fail("{} has no content", place);
    return;
  }
  if (content->is_string()) return;
  if (!content->is_array()) fail("{}.content is {}; expected a string", place, json_excerpt(*content));
  for (const Json& part : *content) {
    if (!part.is_object() || text_of(part, "type", place + ".content") != "text") {
      fail("{}.content has the part {}; expected text alone", place, json_excerpt(part));
    }
  }
}

bool has_valued_parts(const Json& in) {
  const auto content = in.find("content");
  return content != in.end() && content->is_array() && !content->empty() && content->front().is_object() &&
         content->front().contains("value");
}

Json read_openai(const Json& in, const Place& place) {
  Json out = Json::object();
  text_of(in, "role", place);
  const bool has_parts = has_valued_parts(in);
  if (!has_parts) check_content(in, place);
  for (const auto& [key, value] : in.items()) {
    if (std::find(kWeightKeys.begin(), kWeightKeys.end(), key) != kWeightKeys.end()) continue;
    if (key != "content" || !has_parts) out[key] = value;
  }
  if (has_parts) read_valued_parts(in.at("content"), place, out);
  return out;
}

Json read_sharegpt(const Json& in, const Place& place) {
  const std::string from = text_of(in, "from", place), value = text_of(in, "value", place);
  const auto* const role = std::find_if(kShareGptRoles.begin(), kShareGptRoles.end(),
                                        [&](const auto& known) { return known.first == from; });
  if (role == kShareGptRoles.end()) {
    fail("{}.from is {}; expected human, gpt, system, function_call, observation or tool", place, text_excerpt(from));
  }
  if (from != "function_call") return message(role->second, value);
  Json out = message("assistant", "");
  out["tool_calls"] = Json::array();
  add_tool_calls(value, place + ".value", out["tool_calls"]);
  return out;
}

/// OpenAI's weight, LLaMA-Factory's loss_weight (0 or 1), axolotl's train and training (true or false).
std::optional<bool> read_weight(const Json& in, const Place& place) {
  for (const std::string_view key : kWeightKeys) {
    const auto found = in.find(key);
    if (found == in.end() || found->is_null()) continue;
    if (found->is_boolean()) return found->get<bool>();
    const double number = found->is_number() ? found->get<double>() : -1.0;
    if (number == 0.0 || number == 1.0) return number == 1.0;
    fail("{}.{} is {}; expected 0, 1, false or true", place, key, json_excerpt(*found));
  }
  return std::nullopt;
}

void append_messages(const Json& list, const std::string& field, Conversation& out, bool& is_sharegpt) {
  if (!list.is_array()) fail("{} is {}; expected a list of messages", field, json_excerpt(list));
  if (list.empty()) fail("{} is empty; expected at least one message", field);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const Json& in = list[i];
    const Place place = fmt::format("{}[{}]", field, i);
    if (!in.is_object()) fail("{} is {}; expected an object with role and content", place, json_excerpt(in));
    is_sharegpt = in.contains("from") && !in.contains("role");
    out.messages.push_back(is_sharegpt ? read_sharegpt(in, place) : read_openai(in, place));
    out.weights.push_back(read_weight(in, place));
  }
}

/// A list, or a text that holds one. LLaMA-Factory's bare functions are put into the form that templates expect.
Json read_tools(const RowFields& fields, bool wraps_functions) {
  const Json* value = fields.find("tools");
  if (value == nullptr || (value->is_string() && value->get_ref<const std::string&>().empty())) return nullptr;
  Json tools = value->is_string() ? parse_json(value->get<std::string>(), "tools") : *value;
  if (tools.is_null()) return nullptr;
  if (!tools.is_array()) fail("tools is {}; expected a list", json_excerpt(tools));
  if (tools.empty()) return nullptr;
  for (Json& tool : tools) {
    if (!tool.is_object()) fail("tools has {}; expected objects", json_excerpt(tool));
    if (wraps_functions && !tool.contains("function") && tool.contains("name")) {
      tool = {{"type", "function"}, {"function", Json(tool)}};
    }
  }
  return tools;
}

void read_surroundings(const RowFields& fields, bool wraps_functions, Conversation& out) {
  out.tools = read_tools(fields, wraps_functions);
  if (const Json* variables = fields.find("chat_template_kwargs")) {
    if (!variables->is_object()) fail("chat_template_kwargs is {}; expected an object", json_excerpt(*variables));
    out.variables = *variables;
  }
}

void add_system(const RowFields& fields, Conversation& out) {
  std::string system = text_field(fields, "system");
  if (system.empty()) return;
  out.messages.push_back(message("system", std::move(system)));
  out.weights.emplace_back();
}

}  // namespace

Conversation read_messages(const RowFields& fields, const Json& list, const std::string& field, bool& is_sharegpt) {
  Conversation out;
  add_system(fields, out);
  append_messages(list, field, out, is_sharegpt);
  if (out.messages.size() > 1 && out.messages[0].at("role") == "system" && out.messages[1].at("role") == "system" &&
      out.messages.size() > list.size()) {
    fail("both the field system and a system message in {}; expected one of them", field);
  }
  read_surroundings(fields, is_sharegpt, out);
  return out;
}

Conversation read_chat_pair(const RowFields& fields) {
  Conversation out;
  bool is_sharegpt = false;
  append_messages(*fields.find("prompt"), "prompt", out, is_sharegpt);
  out.prompt_messages = out.messages.size();
  append_messages(*fields.find("completion"), "completion", out, is_sharegpt);
  read_surroundings(fields, is_sharegpt, out);
  return out;
}

Conversation read_alpaca(const RowFields& fields, const char* answer) {
  Conversation out;
  add_system(fields, out);
  if (const Json* history = fields.find("history")) {
    const auto is_turn = [](const Json& turn) {
      return turn.is_array() && turn.size() == 2 && turn[0].is_string() && turn[1].is_string();
    };
    if (!history->is_array() || !std::all_of(history->begin(), history->end(), is_turn)) {
      fail("history is {}; expected a list of [question, answer]", json_excerpt(*history));
    }
    for (const Json& turn : *history) {
      out.messages.push_back(message("user", turn[0]));
      out.messages.push_back(message("assistant", turn[1]));
    }
  }
  std::string question = text_field(fields, "instruction");
  if (const std::string input = text_field(fields, "input"); !input.empty()) question += "\n" + input;
  out.messages.push_back(message("user", std::move(question)));
  out.prompt_messages = out.messages.size();
  out.messages.push_back(message("assistant", text_field(fields, answer)));
  out.weights.resize(out.messages.size());
  read_surroundings(fields, true, out);
  return out;
}

TextPair alpaca_texts(const RowFields& fields, const char* answer) {
  for (const char* name : {"system", "history", "tools"}) {
    if (fields.find(name) != nullptr) fail("{} needs a chat template, and the tokenizer has none", name);
  }
  const std::string instruction = text_field(fields, "instruction"), input = text_field(fields, "input");
  const std::string completion = text_field(fields, answer);
  if (input.empty()) {
    return {fmt::format("Below is an instruction that describes a task. Write a response that appropriately completes "
                        "the request.\n\n### Instruction:\n{}\n\n### Response:\n",
                        instruction),
            completion};
  }
  return {fmt::format("Below is an instruction that describes a task, paired with an input that provides further "
                      "context. Write a response that appropriately completes the request.\n\n### Instruction:\n{}\n\n"
                      "### Input:\n{}\n\n### Response:\n",
                      instruction, input),
          completion};
}

}  // namespace heddle
