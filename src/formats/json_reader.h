#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json.h"

namespace heddle {

/// Reads the members of a JSON object that people wrote, one at a time, each with its type and range. Every error is
/// "FILE: KEY is VALUE; expected WHAT", KEY being the dotted path from the root. A null member counts as absent.
/// Refers to the object: it must outlive the reader.
class JsonReader {
 public:
  /// Throws if `value` is no object.
  JsonReader(const Json& value, std::string file);

  const std::string& file() const { return file_; }
  const Json& value() const { return *value_; }
  /// The member, or nullptr if it is absent or null.
  const Json* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// The member is there and null: "none", where absence would mean a default.
  bool is_null(std::string_view key) const;
  /// The first of the keys that is present, or the first of all.
  std::string_view either(std::string_view key, std::string_view other) const;

  std::int64_t integer(std::string_view key, std::int64_t min, std::int64_t max) const;
  std::int64_t integer_or(std::string_view key, std::int64_t absent, std::int64_t min, std::int64_t max) const;
  /// Whole numbers are numbers too.
  double number(std::string_view key) const;
  double number_or(std::string_view key, double absent) const;
  double positive_number(std::string_view key) const;
  double positive_number_or(std::string_view key, double absent) const;
  /// From 0 up to and including `max`.
  double number_up_to_or(std::string_view key, double absent, double max) const;
  bool boolean_or(std::string_view key, bool absent) const;
  std::string text(std::string_view key) const;
  std::string text_or(std::string_view key, std::string absent) const;
  std::vector<double> positive_numbers(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;
  JsonReader object(std::string_view key) const;

  /// Throws "FILE: KEY is VALUE; expected EXPECTED" ("is absent" without the member).
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;
  /// Throws "FILE: KEY WHAT".
  [[noreturn]] void refuse_because(std::string_view key, std::string_view what) const;
  /// Refuses a text that is none of the candidates, naming them and the nearest.
  [[noreturn]] void refuse_choice(std::string_view key, std::span<const std::string_view> candidates) const;
  /// Refuses members whose key is not in the list, naming the nearest.
  void allow_only(std::span<const std::string_view> keys) const;

 private:
  JsonReader(const Json& value, std::string file, std::string path);
  std::string path_of(std::string_view key) const;

  const Json* value_;
  std::string file_;
  std::string path_;  // "rope_scaling." within that object, else ""
};

}  // namespace heddle
