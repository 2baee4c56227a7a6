#include "data/tokenizer/json_entry.h"

#include <limits>
#include <span>

#include "base/text.h"
#include "data/tokenizer/unicode.h"

namespace heddle {
namespace {

/// A value in a message: whole when short.
std::string show(const Json& value) {
  if (value.is_object() && !value.empty()) return "an object";
  if (value.is_array() && value.size() > 8) return fmt::format("a list of {}", value.size());
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr std::size_t longest = 120;
  if (text.size() > longest) text = unicode::to_valid(std::string_view(text).substr(0, longest)) + "...";
  return text;
}

}  // namespace

std::string JsonEntry::where() const { return path_.empty() ? file_ : file_ + ": " + path_; }

void JsonEntry::refuse(std::string_view expected) const {
  fail("{} is {}; expected {}", path_.empty() ? file_ + ": the document" : where(), show(*value_), expected);
}

void JsonEntry::require_object() const {
  if (!value_->is_object()) refuse("an object");
}

JsonEntry JsonEntry::child(const Json& value, std::string_view name) const {
  return JsonEntry(value, file_, path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name));
}

JsonEntry JsonEntry::at(std::string_view key) const {
  require_object();
  const auto found = value_->find(std::string(key));
  if (found == value_->end()) fail("{}: {} is missing", where(), key);
  return child(*found, key);
}

std::optional<JsonEntry> JsonEntry::find(std::string_view key) const {
  require_object();
  const auto found = value_->find(std::string(key));
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return child(*found, key);
}

std::vector<JsonEntry> JsonEntry::elements() const {
  if (!value_->is_array()) refuse("a list");
  std::vector<JsonEntry> entries;
  for (std::size_t i = 0; i < value_->size(); ++i) {
    entries.emplace_back((*value_)[i], file_, fmt::format("{}[{}]", path_, i));
  }
  return entries;
}

std::string JsonEntry::string() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get<std::string>();
}

char32_t JsonEntry::character() const {
  const std::string text = string();
  if (!unicode::is_one_character(text)) refuse("one character");
  return unicode::decode(text.data()).code;
}

bool JsonEntry::boolean() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

std::int32_t JsonEntry::count() const {
  constexpr auto most = std::numeric_limits<std::int32_t>::max();
  if (!value_->is_number_integer() || (value_->is_number_unsigned() ? value_->get<std::uint64_t>() > std::uint64_t{most}
                                                                    : value_->get<std::int64_t>() < 0)) {
    refuse("a whole number from 0 to 2147483647");
  }
  return value_->get<std::int32_t>();
}

double JsonEntry::number() const {
  if (!value_->is_number()) refuse("a number");
  return value_->get<double>();
}

bool JsonEntry::boolean(std::string_view key, bool otherwise) const {
  const auto entry = find(key);
  return entry ? entry->boolean() : otherwise;
}

std::optional<std::string> JsonEntry::optional_string(std::string_view key) const {
  const auto entry = find(key);
  if (!entry) return std::nullopt;
  return entry->string();
}

std::size_t JsonEntry::one_of(const std::string_view* names, std::size_t size) const {
  const std::string text = string();
  std::string listed;
  for (std::size_t i = 0; i < size; ++i) {
    if (names[i] == text) return i;
    listed += (i == 0 ? "" : i + 1 == size ? " or " : ", ") + std::string(names[i]);
  }
  refuse(listed + did_you_mean(text, std::span(names, size)));
}

void read_object_file(const std::filesystem::path& path, const std::function<void(const JsonEntry&)>& read) {
  if (!std::filesystem::exists(path)) return;
  const Json document = read_json_file(path);
  const JsonEntry entry(document, path.string());
  entry.require_object();
  read(entry);
}

}  // namespace heddle
