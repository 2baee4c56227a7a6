#include "formats/json_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace heddle {

JsonReader::JsonReader(const Json& value, std::string file) : JsonReader(value, std::move(file), "") {
  if (!value.is_object()) fail("{}: is {}; expected an object", file_, json_excerpt(value));
}

JsonReader::JsonReader(const Json& value, std::string file, std::string path)
    : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

std::string JsonReader::path_of(std::string_view key) const { return path_ + std::string(key); }

const Json* JsonReader::find(std::string_view key) const {
  for (const auto& [name, member] : value_->get_ref<const Json::object_t&>()) {
    if (name == key) return member.is_null() ? nullptr : &member;
  }
  return nullptr;
}

bool JsonReader::is_null(std::string_view key) const {
  const auto& members = value_->get_ref<const Json::object_t&>();
  return std::any_of(members.begin(), members.end(),
                     [&](const auto& member) { return member.first == key && member.second.is_null(); });
}

std::string_view JsonReader::either(std::string_view key, std::string_view other) const {
  return !has(key) && has(other) ? other : key;
}

void JsonReader::refuse(std::string_view key, std::string_view expected) const {
  const Json* member = find(key);
  fail("{}: {} is {}; expected {}", file_, path_of(key), member == nullptr ? "absent" : json_excerpt(*member),
       expected);
}

void JsonReader::refuse_because(std::string_view key, std::string_view what) const {
  fail("{}: {} {}", file_, path_of(key), what);
}

void JsonReader::refuse_choice(std::string_view key, std::span<const std::string_view> candidates) const {
  const Json* member = find(key);
  const bool is_text = member != nullptr && member->is_string();
  refuse(key, fmt::format("one of {}{}", fmt::join(candidates, ", "),
                          is_text ? did_you_mean(member->get_ref<const std::string&>(), candidates) : ""));
}

void JsonReader::allow_only(std::span<const std::string_view> keys) const {
  for (const auto& [name, member] : value_->get_ref<const Json::object_t&>()) {
    if (std::find(keys.begin(), keys.end(), name) == keys.end()) {
      fail("{}: {} is no known key{}", file_, path_of(text_excerpt(name)), did_you_mean(name, keys));
    }
  }
}

std::int64_t JsonReader::integer(std::string_view key, std::int64_t min, std::int64_t max) const {
  const Json* member = find(key);
  const auto whole = [&] {
    if (member == nullptr || !member->is_number_integer()) return false;
    if (member->is_number_unsigned()) {
      const auto value = member->get<std::uint64_t>();
      return max >= 0 && value <= static_cast<std::uint64_t>(max) &&
             (min <= 0 || value >= static_cast<std::uint64_t>(min));
    }
    const auto value = member->get<std::int64_t>();
    return value >= min && value <= max;
  };
  if (!whole()) refuse(key, fmt::format("a whole number from {} to {}", min, max));
  return member->get<std::int64_t>();
}

std::int64_t JsonReader::integer_or(std::string_view key, std::int64_t absent, std::int64_t min,
                                    std::int64_t max) const {
  return has(key) ? integer(key, min, max) : absent;
}

double JsonReader::number(std::string_view key) const {
  const Json* member = find(key);
  if (member == nullptr || !member->is_number()) refuse(key, "a number");
  return member->get<double>();
}

double JsonReader::number_or(std::string_view key, double absent) const { return has(key) ? number(key) : absent; }

double JsonReader::positive_number(std::string_view key) const {
  const Json* member = find(key);
  if (member == nullptr || !member->is_number() || !(member->get<double>() > 0)) refuse(key, "a number above 0");
  return member->get<double>();
}

double JsonReader::positive_number_or(std::string_view key, double absent) const {
  return has(key) ? positive_number(key) : absent;
}

double JsonReader::number_up_to_or(std::string_view key, double absent, double max) const {
  if (!has(key)) return absent;
  const Json* member = find(key);
  if (!member->is_number() || !(member->get<double>() >= 0) || !(member->get<double>() <= max)) {
    refuse(key, max == std::numeric_limits<double>::infinity() ? std::string("a number, 0 or above")
                                                               : fmt::format("a number from 0 to {}", max));
  }
  return member->get<double>();
}

bool JsonReader::boolean_or(std::string_view key, bool absent) const {
  const Json* member = find(key);
  if (member == nullptr) return absent;
  if (!member->is_boolean()) refuse(key, "true or false");
  return member->get<bool>();
}

std::string JsonReader::text(std::string_view key) const {
  const Json* member = find(key);
  if (member == nullptr || !member->is_string()) refuse(key, "a text");
  return member->get<std::string>();
}

std::string JsonReader::text_or(std::string_view key, std::string absent) const {
  return has(key) ? text(key) : std::move(absent);
}

std::vector<double> JsonReader::positive_numbers(std::string_view key) const {
  const Json* member = find(key);
  const auto positive = [](const Json& value) { return value.is_number() && value.get<double>() > 0; };
  if (member == nullptr || !member->is_array() || !std::all_of(member->begin(), member->end(), positive)) {
    refuse(key, "a list of numbers above 0");
  }
  return member->get<std::vector<double>>();
}

std::vector<std::string> JsonReader::texts(std::string_view key) const {
  const Json* member = find(key);
  const auto is_text = [](const Json& value) { return value.is_string(); };
  if (member == nullptr || !member->is_array() || !std::all_of(member->begin(), member->end(), is_text)) {
    refuse(key, "a list of texts");
  }
  return member->get<std::vector<std::string>>();
}

JsonReader JsonReader::object(std::string_view key) const {
  const Json* member = find(key);
  if (member == nullptr || !member->is_object()) refuse(key, "an object");
  return JsonReader(*member, file_, path_of(key) + ".");
}

}  // namespace heddle
