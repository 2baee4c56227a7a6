#include "config/yaml_writer.h"

#include <algorithm>
#include <array>

#include "config/source_node.h"

namespace heddle {
namespace {

using namespace std::string_view_literals;

// Booleans and nulls of YAML 1.1, which ours takes for text.
constexpr std::array kOtherWords = {"y"sv,    "Y"sv,    "n"sv,     "N"sv,     "yes"sv,  "Yes"sv, "YES"sv, "no"sv,
                                    "No"sv,   "NO"sv,   "on"sv,    "On"sv,    "ON"sv,   "off"sv, "Off"sv, "OFF"sv,
                                    "True"sv, "TRUE"sv, "False"sv, "FALSE"sv, "Null"sv, "NULL"sv};

bool is_plain(std::string_view text) {
  constexpr auto letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"sv;
  constexpr auto others = "0123456789_./-"sv;
  if (text.empty() || (letters.find(text.front()) == std::string_view::npos && text.front() != '/')) return false;
  const auto is_safe = [&](char c) {
    return letters.find(c) != std::string_view::npos || others.find(c) != others.npos;
  };
  return std::all_of(text.begin(), text.end(), is_safe) && plain_scalar_kind(text) == SourceNode::Kind::text &&
         std::find(kOtherWords.begin(), kOtherWords.end(), text) == kOtherWords.end();
}

std::string scalar(const Json& value) {
  if (value.is_string() && is_plain(value.get<std::string>())) return value.get<std::string>();
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string flow(const Json& value) {
  if (!value.is_array()) return value.is_object() ? value.dump() : scalar(value);
  std::string text = "[";
  for (const auto& item : value) text += (text.size() == 1 ? "" : ", ") + flow(item);
  return text + "]";
}

void write(std::string& text, std::string_view key, const Json& value, std::size_t depth) {
  text.append(2 * depth, ' ');
  text += scalar(Json(key)) + ":";
  if (!value.is_object() || value.empty()) {
    text += " " + flow(value) + "\n";
    return;
  }
  text += "\n";
  for (const auto& [name, entry] : value.items()) write(text, name, entry, depth + 1);
}

}  // namespace

std::string yaml_entry(std::string_view key, const Json& value) {
  std::string text;
  write(text, key, value, 0);
  return text;
}

}  // namespace heddle
