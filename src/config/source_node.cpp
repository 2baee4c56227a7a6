#include "config/source_node.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t count_digits(std::string_view text) {
  return static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_digit) - text.begin());
}

/// [+-] digits [. digits] [e [+-] digits], with a digit on at least one side of the point and no leading zero.
bool is_number(std::string_view text) {
  if (!text.empty() && (text.front() == '+' || text.front() == '-')) text.remove_prefix(1);
  const auto whole = count_digits(text);
  if (whole > 1 && text.front() == '0') return false;
  text.remove_prefix(whole);
  std::size_t fraction = 0;
  if (!text.empty() && text.front() == '.') {
    text.remove_prefix(1);
    fraction = count_digits(text);
    text.remove_prefix(fraction);
  }
  if (whole + fraction == 0) return false;
  if (text.empty()) return true;
  if (text.front() != 'e' && text.front() != 'E') return false;
  text.remove_prefix(1);
  if (!text.empty() && (text.front() == '+' || text.front() == '-')) text.remove_prefix(1);
  const auto exponent = count_digits(text);
  return exponent > 0 && exponent == text.size();
}

}  // namespace

SourceNode* SourceNode::find(std::string_view name) {
  const auto at = std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return entry.name == name; });
  return at == entries.end() ? nullptr : &at->node;
}

const SourceNode* SourceNode::find(std::string_view name) const { return const_cast<SourceNode*>(this)->find(name); }

SourceNode& SourceNode::add(std::string name, SourceNode node) {
  entries.push_back({std::move(name), std::move(node)});
  return entries.back().node;
}

void set_path(SourceNode& node, std::string_view path, SourceNode value) {
  const auto dot = path.find('.');
  const std::string name(path.substr(0, dot));
  auto* entry = node.find(name);
  if (entry == nullptr) entry = &node.add(name, SourceNode{});
  if (dot == std::string_view::npos) {
    *entry = std::move(value);
    return;
  }
  if (entry->kind != SourceNode::Kind::map) {
    *entry = SourceNode{};
    entry->kind = SourceNode::Kind::map;
    entry->where = value.where;
  }
  set_path(*entry, path.substr(dot + 1), std::move(value));
}

SourceNode::Kind plain_scalar_kind(std::string_view text) {
  if (text.empty() || text == "~" || text == "null") return SourceNode::Kind::null;
  if (text == "true" || text == "false") return SourceNode::Kind::boolean;
  return is_number(text) ? SourceNode::Kind::number : SourceNode::Kind::text;
}

SourceNode parse_source(std::string_view text, const std::string& name, bool is_strict) {
  const auto first = text.find_first_not_of(" \t\r\n");
  const bool may_be_json = is_strict || (first != std::string_view::npos && text[first] == '{');
  try {
    auto root = parse_yaml(text, name);  // knows the line of each value
    if (is_strict) parse_json(text, name);
    return root;
  } catch (const DuplicateKeyError&) {
    throw;
  } catch (const Error&) {
    if (!may_be_json) throw;
  }
  auto root = node_from_json(parse_json(text, name), name);
  if (root.kind != SourceNode::Kind::map) fail("{}: is {}; expected an object", name, describe(root));
  return root;
}

SourceNode parse_command_line_value(std::string_view text) {
  const std::string where = "command line";
  if (text.starts_with('{') || text.starts_with('[')) {
    auto document = parse_yaml("value: " + std::string(text), where);
    auto& value = document.entries.front().node;
    return std::move(value);
  }
  SourceNode node;
  node.kind = plain_scalar_kind(text);
  node.text = text;
  node.where = where;
  node.is_untyped = true;
  return node;
}

SourceNode node_from_json(const Json& value, const std::string& where) {
  SourceNode node;
  node.where = where;
  if (value.is_object()) {
    node.kind = SourceNode::Kind::map;
    for (const auto& [name, entry] : value.items()) node.add(name, node_from_json(entry, where));
  } else if (value.is_array()) {
    node.kind = SourceNode::Kind::list;
    for (const auto& item : value) node.items.push_back(node_from_json(item, where));
  } else if (value.is_string()) {
    node.kind = SourceNode::Kind::text;
    node.text = value.get<std::string>();
  } else if (!value.is_null()) {
    node.kind = value.is_boolean() ? SourceNode::Kind::boolean : SourceNode::Kind::number;
    node.text = value.dump();
  }
  return node;
}

std::string describe(const SourceNode& node) {
  switch (node.kind) {
    case SourceNode::Kind::null: return "empty";
    case SourceNode::Kind::list: return "a list";
    case SourceNode::Kind::map: return "a map";
    case SourceNode::Kind::text: return Json(node.text).dump(-1, ' ', false, Json::error_handler_t::replace);
    default: return node.text;
  }
}

}  // namespace heddle
