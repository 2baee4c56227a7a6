#include "formats/gguf_metadata.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/error.h"
#include "formats/json.h"

namespace heddle {
namespace {

constexpr std::size_t kShownElements = 8;

template <typename Element>
std::string excerpt_of_array(const std::vector<Element>& values, std::size_t max_length) {
  Json first = Json::array();
  for (std::size_t i = 0; i < std::min(values.size(), kShownElements); ++i) {
    first.push_back(static_cast<Element>(values[i]));
  }
  std::string text = text_excerpt(first.dump(-1, ' ', true, Json::error_handler_t::replace), max_length);
  if (values.size() > kShownElements) {
    if (text.ends_with(']')) text.replace(text.size() - 1, 1, ", ...]");
    text += fmt::format(" ({} elements)", values.size());
  }
  return text;
}

}  // namespace

std::string gguf_excerpt(const GgufValue& value, std::size_t max_length) {
  const auto excerpt = [max_length](const auto& held) -> std::string {
    using Held = std::decay_t<decltype(held)>;
    if constexpr (std::is_arithmetic_v<Held> || std::is_same_v<Held, std::string>) {
      return json_excerpt(Json(held), max_length);
    } else {
      return excerpt_of_array(held, max_length);
    }
  };
  return std::visit(excerpt, value);
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = index_of_.find(key);
  return found == index_of_.end() ? nullptr : &entries_[found->second].second;
}

void GgufMetadata::add(std::string key, GgufValue value) {
  if (!index_of_.emplace(key, entries_.size()).second) fail("{}: {} is given twice", file_, text_excerpt(key));
  entries_.emplace_back(std::move(key), std::move(value));
}

void GgufMetadata::refuse(std::string_view key, std::string_view expected) const {
  const GgufValue* value = find(key);
  const std::string name = text_excerpt(key);
  if (value == nullptr) fail("{}: {} is absent; expected {}", file_, name, expected);
  fail("{}: {} is {}; expected {}", file_, name, gguf_excerpt(*value), expected);
}

template <typename Kind>
const Kind* GgufMetadata::get(std::string_view key, std::string_view expected) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return nullptr;
  const Kind* held = std::get_if<Kind>(value);
  if (held == nullptr) refuse(key, expected);
  return held;
}

std::int64_t GgufMetadata::integer(std::string_view key, std::int64_t min, std::int64_t max) const {
  const GgufValue* value = find(key);
  if (value != nullptr) {
    if (const auto* whole = std::get_if<std::int64_t>(value); whole != nullptr && *whole >= min && *whole <= max) {
      return *whole;
    }
    const auto* count = std::get_if<std::uint64_t>(value);
    if (count != nullptr && *count <= std::uint64_t{INT64_MAX}) {
      const auto whole = static_cast<std::int64_t>(*count);
      if (whole >= min && whole <= max) return whole;
    }
  }
  refuse(key, fmt::format("a whole number from {} to {}", min, max));
}

std::int64_t GgufMetadata::integer_or(std::string_view key, std::int64_t absent, std::int64_t min,
                                      std::int64_t max) const {
  return has(key) ? integer(key, min, max) : absent;
}

double GgufMetadata::number(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value != nullptr) {
    if (const auto* number = std::get_if<double>(value); number != nullptr && std::isfinite(*number)) return *number;
    if (const auto* whole = std::get_if<std::int64_t>(value)) return static_cast<double>(*whole);
    if (const auto* count = std::get_if<std::uint64_t>(value)) return static_cast<double>(*count);
  }
  refuse(key, "a finite number");
}

double GgufMetadata::number_or(std::string_view key, double absent) const { return has(key) ? number(key) : absent; }

bool GgufMetadata::boolean_or(std::string_view key, bool absent) const {
  const bool* value = get<bool>(key, "true or false");
  return value != nullptr ? *value : absent;
}

const std::string& GgufMetadata::text(std::string_view key) const {
  const auto* value = get<std::string>(key, "a text");
  if (value == nullptr) refuse(key, "a text");
  return *value;
}

std::string GgufMetadata::text_or(std::string_view key, std::string absent) const {
  if (has(key)) return text(key);
  return absent;
}

const std::vector<std::int64_t>* GgufMetadata::integers(std::string_view key) const {
  return get<std::vector<std::int64_t>>(key, "an array of whole numbers");
}

const std::vector<double>* GgufMetadata::numbers(std::string_view key) const {
  return get<std::vector<double>>(key, "an array of numbers");
}

const std::vector<bool>* GgufMetadata::booleans(std::string_view key) const {
  return get<std::vector<bool>>(key, "an array of truth values");
}

const std::vector<std::string>* GgufMetadata::texts(std::string_view key) const {
  return get<std::vector<std::string>>(key, "an array of texts");
}

}  // namespace heddle
