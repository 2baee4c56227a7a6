#include "config/value_rule.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/error.h"

namespace heddle {
namespace {

using Kind = SourceNode::Kind;
using Type = ValueRule::Type;

std::string_view without_plus(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  return text;
}

/// Nothing for a number that a double cannot hold.
std::optional<double> to_double(std::string_view text) {
  text = without_plus(text);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole_text = error == std::errc() && end == text.data() + text.size();
  if (!is_whole_text || !std::isfinite(value)) return std::nullopt;
  return value;
}

/// Nothing for a fraction and for what 64 bits cannot hold. 1e9 and 5.0 are whole numbers.
std::optional<std::int64_t> to_whole(std::string_view text) {
  text = without_plus(text);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  if (text.find_first_of(".eE") == std::string_view::npos) return std::nullopt;
  const auto number = to_double(text);
  if (!number || *number != std::floor(*number) || std::abs(*number) > 0x1p53) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

/// A number that is greater than any may be: only there the bound of all numbers is worth a word.
bool exceeds_all(const SourceNode& node) {
  if (node.kind != Kind::number || node.text.starts_with('-')) return false;
  const auto value = to_double(node.text);
  return !value || *value > ValueRule::kUnbounded;
}

[[noreturn]] void refuse(const SourceNode& node, const ValueRule& rule, const std::string& key) {
  const bool names_bound = rule.most == ValueRule::kUnbounded && exceeds_all(node) &&
                           (rule.type == Type::whole || rule.type == Type::number);
  fail("{}: {} is {}; expected {}{}", node.where, key, describe(node), describe(rule),
       names_bound ? ", below 2^63" : "");
}

bool is_in_range(double value, const ValueRule& rule) {
  const bool above = rule.above_least ? value > rule.least : value >= rule.least;
  const bool below = rule.below_most ? value < rule.most : value <= rule.most;
  return above && below;
}

Json read_whole(const SourceNode& node, const ValueRule& rule, const std::string& key) {
  const auto value = node.kind == Kind::number ? to_whole(node.text) : std::nullopt;
  if (!value || !is_in_range(static_cast<double>(*value), rule)) refuse(node, rule, key);
  return *value;
}

Json read_number(const SourceNode& node, const ValueRule& rule, const std::string& key) {
  const auto value = node.kind == Kind::number ? to_double(node.text) : std::nullopt;
  if (!value || !is_in_range(*value, rule)) refuse(node, rule, key);
  if (node.text.find_first_of(".eE") == std::string::npos) {
    if (const auto whole = to_whole(node.text)) return *whole;
  }
  return *value;
}

/// 2GiB, 1.5 GiB, 512MB (10^6), 4096: a number and a unit.
std::optional<std::uint64_t> to_bytes(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr std::array kUnits = {Unit{"KiB", 0x1p10}, Unit{"MiB", 0x1p20}, Unit{"GiB", 0x1p30},
                                 Unit{"TiB", 0x1p40}, Unit{"KB", 1e3},     Unit{"MB", 1e6},
                                 Unit{"GB", 1e9},     Unit{"TB", 1e12},    Unit{"B", 1}};
  double factor = 1;
  for (const auto& unit : kUnits) {
    if (text.ends_with(unit.name)) {
      factor = unit.bytes;
      text.remove_suffix(unit.name.size());
      while (text.ends_with(' ')) text.remove_suffix(1);
      break;
    }
  }
  if (plain_scalar_kind(text) != Kind::number) return std::nullopt;
  if (factor == 1) {
    const auto whole = to_whole(text);
    return whole && *whole > 0 ? std::optional<std::uint64_t>(*whole) : std::nullopt;
  }
  const auto number = to_double(text);
  if (!number || *number <= 0 || *number * factor > 0x1p53) return std::nullopt;
  return static_cast<std::uint64_t>(*number * factor);
}

std::string read_text(const SourceNode& node, const ValueRule& rule, const std::string& key) {
  const bool is_text = node.kind == Kind::text || (node.is_untyped && node.kind != Kind::null);
  if (!is_text || node.text.empty() || node.text.find('\0') != std::string::npos) refuse(node, rule, key);
  return node.text;
}

Json read_word(const SourceNode& node, const ValueRule& rule, const std::string& key) {
  const auto& words = rule.words;
  const bool is_known = node.kind == Kind::text && std::find(words.begin(), words.end(), node.text) != words.end();
  if (!is_known) refuse(node, rule, key);
  return node.text;
}

std::string key_of_item(const std::string& key, std::size_t index) { return fmt::format("{}[{}]", key, index); }

Json read_text_list(const SourceNode& node, const ValueRule& rule, const std::string& key) {
  if (node.kind == Kind::text) return node.text;
  if (node.kind != Kind::list) refuse(node, rule, key);
  auto list = Json::array();
  for (const auto& item : node.items) {
    if (item.kind != Kind::text) refuse(item, ValueRule::text(), key_of_item(key, list.size()));
    list.push_back(item.text);
  }
  return list;
}

Json read_text_map(const SourceNode& node, const ValueRule& rule, const std::string& key) {
  if (node.kind != Kind::map) refuse(node, rule, key);
  auto map = Json::object();
  for (const auto& [name, entry] : node.entries) {
    map[name] = read_text(entry, ValueRule::text(), fmt::format("{}.{}", key, name));
  }
  return map;
}

Json read_number_list(const SourceNode& node, const ValueRule& rule, const std::string& key) {
  if (node.kind != Kind::list || node.items.size() != static_cast<std::size_t>(rule.length)) refuse(node, rule, key);
  auto list = Json::array();
  auto each = rule;
  each.type = Type::number;
  for (const auto& item : node.items) list.push_back(read_number(item, each, key_of_item(key, list.size())));
  return list;
}

Json read_whole_list(const SourceNode& node, const ValueRule& rule, const std::string& key) {
  if (node.kind != Kind::list) refuse(node, rule, key);
  auto list = Json::array();
  auto each = rule;
  each.type = Type::whole;
  for (const auto& item : node.items) list.push_back(read_whole(item, each, key_of_item(key, list.size())));
  return list;
}

Json read_token_indices(const SourceNode& node, const ValueRule& rule, const std::string& key) {
  if (node.kind != Kind::map) return read_whole_list(node, rule, key);
  auto lists = Json::object();
  for (const auto& [module, entry] : node.entries)
    lists[module] = read_whole_list(entry, rule, fmt::format("{}.{}", key, module));
  return lists;
}

Json read_data_file(const SourceNode& node, const std::string& key) {
  if (node.kind != Kind::map) {
    return {{"path", read_text(node, ValueRule::data_files(), key)}, {"weight", 1.0}};
  }
  Json file = {{"path", nullptr}, {"weight", 1.0}};
  for (const auto& [name, entry] : node.entries) {
    const auto path = fmt::format("{}.{}", key, name);
    if (name == "path") {
      file["path"] = read_text(entry, ValueRule::text(), path);
    } else if (name == "weight") {
      file["weight"] = read_number(entry, ValueRule::positive(), path);
    } else {
      fail("{}: unknown key {}; expected path and weight", entry.where, path);
    }
  }
  if (file["path"].is_null()) fail("{}: {} has no path", node.where, key);
  return file;
}

Json read_data_files(const SourceNode& node, const ValueRule& rule, const std::string& key) {
  auto files = Json::array();
  if (node.kind != Kind::list) {
    files.push_back(read_data_file(node, key));
    return files;
  }
  if (node.items.empty()) fail("{}: {} is an empty list; expected {}", node.where, key, describe(rule));
  for (const auto& item : node.items) files.push_back(read_data_file(item, key_of_item(key, files.size())));
  return files;
}

Json read_param_group(const SourceNode& node, const std::string& key) {
  if (node.kind != Kind::map) refuse(node, ValueRule::param_groups(), key);
  auto group = Json::object();
  for (const auto& [name, entry] : node.entries) {
    const auto path = fmt::format("{}.{}", key, name);
    if (name == "params") {
      const Json patterns = read_text_list(entry, ValueRule::text_list(), path);
      group[name] = patterns.is_array() ? patterns : Json::array({patterns});
    } else if (name == "learning_rate" || name == "lr_scale" || name == "weight_decay") {
      group[name] = read_number(entry, ValueRule::number(0), path);
    } else {
      fail("{}: unknown key {}; expected params, learning_rate, lr_scale and weight_decay", entry.where, path);
    }
  }
  if (!group.contains("params") || group["params"].empty())
    fail("{}: {} has no params; expected patterns of tensor names", node.where, key);
  if (group.contains("learning_rate") && group.contains("lr_scale"))
    fail("{}: {} has learning_rate and lr_scale; set one of them", node.where, key);
  if (group.size() == 1)
    fail("{}: {} changes nothing; expected {}", node.where, key, "learning_rate, lr_scale or weight_decay");
  return group;
}

Json read_param_groups(const SourceNode& node, const ValueRule& rule, const std::string& key) {
  if (node.kind != Kind::list) refuse(node, rule, key);
  auto groups = Json::array();
  for (const auto& item : node.items) groups.push_back(read_param_group(item, key_of_item(key, groups.size())));
  return groups;
}

/// auto, false or a path; HF's null and false are the same words for "from nothing" there, but null is our default.
Json read_resume(const SourceNode& node, const ValueRule& rule, const std::string& key) {
  if (node.kind == Kind::null) return "auto";
  if (node.kind == Kind::boolean && node.text == "false") return "false";
  if (node.kind == Kind::boolean) refuse(node, rule, key);
  return read_text(node, rule, key);
}

std::string describe_range(const ValueRule& rule) {
  const bool has_least = rule.least > -ValueRule::kUnbounded, has_most = rule.most < 0x1p53;
  if (has_least && has_most) {
    return fmt::format(" from {} to {}{}", number_text(rule.least), rule.below_most ? "below " : "",
                       number_text(rule.most));
  }
  if (has_least) return fmt::format(" {} {}", rule.above_least ? "above" : "of at least", number_text(rule.least));
  return "";
}

std::string describe_type(const ValueRule& rule) {
  switch (rule.type) {
    case Type::boolean: return "true or false";
    case Type::whole: return "a whole number" + describe_range(rule);
    case Type::number: return "a number" + describe_range(rule);
    case Type::text: return "text";
    case Type::word: return join_choices(rule.words);
    case Type::bytes: return "bytes, as 2GiB or 2147483648";
    case Type::text_list: return "a name or a list of names";
    case Type::number_list: return fmt::format("a list of {} numbers{}", rule.length, describe_range(rule));
    case Type::whole_list: return "a list of whole numbers" + describe_range(rule);
    case Type::token_indices: return "a list of ids, or such lists by module";
    case Type::map: return "a map";
    case Type::text_map: return "a map of names";
    case Type::resume: return "auto, false or a path";
    case Type::param_groups: return "a list of {params, learning_rate or lr_scale, weight_decay}";
    case Type::data_files: return "a path, a list of paths, or a list of {path, weight}";
  }
  return "";
}

}  // namespace

std::string number_text(double value) {
  const bool is_whole = value == std::floor(value) && std::abs(value) < 0x1p53;
  return is_whole ? fmt::format("{}", static_cast<std::int64_t>(value)) : fmt::format("{}", value);
}

std::string join_choices(std::span<const std::string_view> names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += i == 0 ? "" : i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

std::string describe(const ValueRule& rule) { return describe_type(rule); }

Json read_value(const SourceNode& node, const ValueRule& rule, const std::string& key) {
  if (node.kind == Kind::null && rule.is_optional) return nullptr;
  switch (rule.type) {
    case Type::boolean:
      if (node.kind != Kind::boolean) refuse(node, rule, key);
      return node.text == "true";
    case Type::whole: return read_whole(node, rule, key);
    case Type::number: return read_number(node, rule, key);
    case Type::text: return read_text(node, rule, key);
    case Type::word: return read_word(node, rule, key);
    case Type::bytes: {
      const bool is_scalar = node.kind == Kind::number || node.kind == Kind::text;
      const auto bytes = is_scalar ? to_bytes(node.text) : std::nullopt;
      if (!bytes) refuse(node, rule, key);
      return *bytes;
    }
    case Type::text_list: return read_text_list(node, rule, key);
    case Type::number_list: return read_number_list(node, rule, key);
    case Type::whole_list: return read_whole_list(node, rule, key);
    case Type::token_indices: return read_token_indices(node, rule, key);
    case Type::map:
      if (node.kind != Kind::map) refuse(node, rule, key);
      return Json::object();
    case Type::text_map: return read_text_map(node, rule, key);
    case Type::resume: return read_resume(node, rule, key);
    case Type::data_files: return read_data_files(node, rule, key);
    case Type::param_groups: return read_param_groups(node, rule, key);
  }
  return nullptr;
}

Json read_untyped(const SourceNode& node) {
  if (node.kind == Kind::null) return nullptr;
  if (node.kind == Kind::boolean) return node.text == "true";
  if (node.kind == Kind::number) return read_number(node, ValueRule::number(-ValueRule::kUnbounded), "a number");
  if (node.kind == Kind::text) return node.text;
  auto value = node.kind == Kind::list ? Json::array() : Json::object();
  for (const auto& item : node.items) value.push_back(read_untyped(item));
  for (const auto& [name, entry] : node.entries) value[name] = read_untyped(entry);
  return value;
}

}  // namespace heddle
