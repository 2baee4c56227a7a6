#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "formats/json.h"

namespace heddle {

/// A value of a JSON file with the path of keys that led to it, so that every complaint names both. Keys are looked up
/// one by one: not for objects with thousands of them.
class JsonEntry {
 public:
  JsonEntry(const Json& value, std::string file, std::string path = "")
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  const Json& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  /// "FILE: PATH"
  std::string where() const;
  /// Throws "FILE: PATH is VALUE; expected EXPECTED".
  [[noreturn]] void refuse(std::string_view expected) const;

  /// A member that must be there.
  JsonEntry at(std::string_view key) const;
  /// A member that is there and not null.
  std::optional<JsonEntry> find(std::string_view key) const;
  std::vector<JsonEntry> elements() const;
  /// A child of this entry for messages.
  JsonEntry child(const Json& value, std::string_view name) const;

  std::string string() const;
  char32_t character() const;
  bool boolean() const;
  /// 0 .. 2^31 - 1.
  std::int32_t count() const;
  double number() const;
  void require_object() const;

  std::string string(std::string_view key) const { return at(key).string(); }
  /// `otherwise` when absent or null.
  bool boolean(std::string_view key, bool otherwise) const;
  std::optional<std::string> optional_string(std::string_view key) const;

  /// The position of the member `type` in `names`; throws when it is none of them.
  template <std::size_t size>
  std::size_t type(const std::string_view (&names)[size]) const {
    return at("type").one_of(names, size);
  }
  template <std::size_t size>
  std::size_t one_of(const std::string_view (&names)[size]) const {
    return one_of(names, size);
  }

 private:
  std::size_t one_of(const std::string_view* names, std::size_t size) const;

  const Json* value_;
  std::string file_, path_;
};

/// Hands the object in a JSON file to `read`, where there is such a file. Throws Error where it holds no object.
void read_object_file(const std::filesystem::path& path, const std::function<void(const JsonEntry&)>& read);

}  // namespace heddle
