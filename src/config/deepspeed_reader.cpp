#include "config/deepspeed_reader.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"
#include "base/text.h"

namespace heddle {
namespace {

using namespace std::string_view_literals;
using Kind = SourceNode::Kind;

// DeepSpeed compares optimizer names without case.
constexpr std::array kOptimizers = {"adam"sv, "adamw"sv, "lion"sv, "sgd"sv};
constexpr std::array kOtherOptimizers = {"adagrad"sv, "lamb"sv,        "muon"sv,       "onebitadam"sv, "rmsprop"sv,
                                         "muadam"sv,  "zerooneadam"sv, "onebitlamb"sv, "muadamw"sv,    "musgd"sv};

/// Parameters that not every optimizer takes.
struct Taken {
  std::string_view parameter;
  std::array<std::string_view, 3> by;
};
constexpr std::array kTaken = {Taken{"betas", {"adam", "adamw", "lion"}},
                               Taken{"eps", {"adam", "adamw"}},
                               Taken{"bias_correction", {"adam", "adamw"}},
                               Taken{"adam_w_mode", {"adam", "adamw"}},
                               Taken{"amsgrad", {"adam", "adamw"}},
                               Taken{"torch_adam", {"adam", "adamw"}},
                               Taken{"momentum", {"sgd"}},
                               Taken{"dampening", {"sgd"}},
                               Taken{"nesterov", {"sgd"}}};

std::string lower(std::string text) {
  for (auto& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string join(const std::string& section, std::string_view name) {
  return section.empty() ? std::string(name) : fmt::format("{}.{}", section, name);
}

SourceNode* find_path(SourceNode& root, std::string_view path) {
  auto* node = &root;
  while (node != nullptr && !path.empty()) {
    const auto dot = path.find('.');
    node = node->find(path.substr(0, dot));
    path.remove_prefix(dot == std::string_view::npos ? path.size() : dot + 1);
  }
  return node;
}

/// Moves a value to another path, making the objects on the way. Throws if something is there.
void place(SourceNode& root, std::string_view path, SourceNode value, std::string_view old_path) {
  auto* node = &root;
  while (true) {
    const auto dot = path.find('.');
    const auto name = path.substr(0, dot);
    auto* next = node->find(name);
    if (dot == std::string_view::npos) {
      if (next != nullptr) {
        fail("{}: {} and {}, its newer name, are both given ({})", value.where, old_path, name, next->where);
      }
      node->add(std::string(name), std::move(value));
      return;
    }
    if (next == nullptr) {
      SourceNode object;
      object.kind = Kind::map;
      object.where = value.where;
      next = &node->add(std::string(name), std::move(object));
    }
    if (next->kind != Kind::map) fail("{}: {} is {}; expected an object", next->where, name, describe(*next));
    path.remove_prefix(dot + 1);
    node = next;
  }
}

/// For an unknown key: the nearest name of its section, or where a key of that very name is.
std::string known_key(const std::string& section, const std::string& name) {
  const auto nearest = nearest_name(name, deepspeed_names(section));
  if (!nearest.empty()) return fmt::format("; did you mean {}?", join(section, nearest));
  for (const auto& key : deepspeed_keys()) {
    if (key.path.ends_with(name) && key.path.substr(0, key.path.size() - name.size()).ends_with('.')) {
      return fmt::format("; did you mean {}?", key.path);
    }
  }
  return "";
}

/// Whether one `enabled` below is there and none is true.
struct Switches {
  bool any = false, on = false;
};
void find_switches(const SourceNode& node, Switches& switches) {
  for (const auto& [name, entry] : node.entries) {
    if (name == "enabled") {
      switches.any = true;
      switches.on = switches.on || entry.text != "false";
    }
    find_switches(entry, switches);
  }
}

/// By its own `enabled`; a section without one, by those below it.
bool is_turned_off(const SourceNode& section) {
  if (const auto* enabled = section.find("enabled")) return enabled->kind == Kind::boolean && enabled->text == "false";
  Switches switches;
  find_switches(section, switches);
  return switches.any && !switches.on;
}

}  // namespace

bool is_auto_text(const SourceNode& node) { return node.kind == Kind::text && node.text == "auto"; }

std::string_view optimizer_of_deepspeed(const std::string& type) {
  const auto name = lower(type);
  return name == "lion" ? "lion" : name == "sgd" ? "sgd" : "adamw";
}

DeepSpeedReader::DeepSpeedReader(SourceNode& root) {
  check_optimizer_type(root);
  rename_old_keys(root);
  walk(root, "");
}

const SourceNode* DeepSpeedReader::find(std::string_view path) const {
  const auto found = leaves_.find(path);
  return found == leaves_.end() ? nullptr : found->second;
}

bool DeepSpeedReader::is_auto(std::string_view path) const {
  const auto* node = find(path);
  return node != nullptr && is_auto_text(*node);
}

Json DeepSpeedReader::value(std::string_view path) const {
  return read_value(*find(path), find_deepspeed_key(path)->rule, std::string(path));
}

void DeepSpeedReader::rename_old_keys(SourceNode& root) {
  for (const auto& rename : deepspeed_renames()) {
    const auto dot = rename.old_path.rfind('.');
    const auto section = dot == std::string_view::npos ? std::string_view() : rename.old_path.substr(0, dot);
    const auto name = dot == std::string_view::npos ? rename.old_path : rename.old_path.substr(dot + 1);
    auto* parent = find_path(root, section);
    if (parent == nullptr || parent->find(name) == nullptr) continue;
    auto value = std::move(*parent->find(name));
    std::erase_if(parent->entries, [&](const auto& entry) { return entry.name == name; });
    if (rename.is_switch) {
      const auto is_on = read_value(value, ValueRule::boolean(), std::string(rename.old_path));
      value.kind = Kind::text;
      value.text = is_on == true ? "cpu" : "none";
      const auto device_object = rename.new_path.substr(0, rename.new_path.rfind('.'));
      if (find_path(root, device_object) != nullptr) {
        fail("{}: {} and {}, its newer form, are both given", value.where, rename.old_path, device_object);
      }
    }
    place(root, rename.new_path, std::move(value), rename.old_path);
  }
}

/// First of all, since another optimizer has other parameters.
void DeepSpeedReader::check_optimizer_type(const SourceNode& root) const {
  const auto* optimizer = root.find("optimizer");
  const auto* type = optimizer == nullptr ? nullptr : optimizer->find("type");
  if (type == nullptr) return;
  const auto name = read_value(*type, ValueRule::text(), "optimizer.type").get<std::string>();
  const auto among = [&](const auto& names) {
    return std::find(names.begin(), names.end(), lower(name)) != names.end();
  };
  if (among(kOtherOptimizers)) {
    fail("{}: optimizer.type is {}, which this version does not have; it has Adam, AdamW, Lion and SGD", type->where,
         name);
  }
  if (!among(kOptimizers)) {
    fail("{}: optimizer.type is {}; expected Adam, AdamW, Lion or SGD{}", type->where, describe(*type),
         did_you_mean(lower(name), kOptimizers));
  }
  const auto* parameters = optimizer->find("params");
  if (parameters == nullptr) return;
  for (const auto& entry : parameters->entries) {
    const auto* row =
        std::find_if(kTaken.begin(), kTaken.end(), [&](const Taken& t) { return t.parameter == entry.name; });
    if (row == kTaken.end() || std::find(row->by.begin(), row->by.end(), lower(name)) != row->by.end()) continue;
    fail("{}: optimizer.params.{} is {}, which {} does not take", entry.node.where, entry.name, describe(entry.node),
         name);
  }
}

void DeepSpeedReader::walk(const SourceNode& node, const std::string& section) {
  for (const auto& [name, entry] : node.entries) {
    if (name.starts_with('_')) continue;  // a comment, as JSON has none
    const auto path = join(section, name);
    const auto* key = find_deepspeed_key(path);
    if (key == nullptr) fail("{}: unknown key {} of DeepSpeed's JSON{}", entry.where, path, known_key(section, name));
    const bool is_object = key->rule.type == ValueRule::Type::map;
    if (is_object && entry.kind != Kind::map) {
      fail("{}: {} is {}; expected an object", entry.where, path, describe(entry));
    }
    if (path == "scheduler.params") {
      schedule_arguments_ = &entry;
    } else if (key->is_free_form) {
      if (key->effect == DeepSpeedKey::Effect::refused && !is_turned_off(entry)) {
        fail("{}: {} is not here: {}", entry.where, path, key->why);
      }
      walk_free_form(entry, path);
    } else if (is_object) {
      walk(entry, path);
    } else {
      read_leaf(entry, path, *key);
    }
  }
}

void DeepSpeedReader::read_leaf(const SourceNode& node, const std::string& path, const DeepSpeedKey& key) {
  const bool is_refused = key.effect == DeepSpeedKey::Effect::refused;
  if (is_refused && key.only.empty())
    fail("{}: {} is {}; it is not here: {}", node.where, path, describe(node), key.why);
  leaves_[path] = &node;
  if (is_auto_text(node)) {
    if (key.automatic != DeepSpeedKey::Auto::none) return;
    fail("{}: {} is \"auto\", which has no meaning there; expected {}", node.where, path, describe(key.rule));
  }
  const auto value = read_value(node, key.rule, path);
  if (is_refused && !is_among(value, key.only)) {
    const auto choice = key.only.substr(0, key.only.find('|'));
    fail("{}: {} is {}; expected {}: {}", node.where, path, plain_text(value), choice, key.why);
  }
}

void DeepSpeedReader::walk_free_form(const SourceNode& node, const std::string& section) {
  if (node.kind != Kind::map || node.entries.empty()) {
    leaves_[section] = &node;
    return;
  }
  for (const auto& [name, entry] : node.entries) walk_free_form(entry, join(section, name));
}

}  // namespace heddle
