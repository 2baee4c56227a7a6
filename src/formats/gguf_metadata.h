#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace heddle {

/// A value of GGUF's metadata. Unsigned numbers of any width are uint64, signed ones int64, both kinds of floats
/// double; arrays of whole numbers hold int64.
using GgufValue = std::variant<std::uint64_t, std::int64_t, double, bool, std::string, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<bool>, std::vector<std::string>>;

/// The value as a message or a listing shows it: on one line, an array by its first elements and its length.
std::string gguf_excerpt(const GgufValue& value, std::size_t max_length = 60);

/// The metadata of a GGUF file: keys with values, in the file's order. Reads as JsonReader does: the getters with a
/// default take it where the key is absent, the others throw; a value of another kind or out of range is an Error
/// "FILE: KEY is VALUE; expected WHAT".
class GgufMetadata {
 public:
  using Entry = std::pair<std::string, GgufValue>;

  /// `file` names it in messages.
  explicit GgufMetadata(std::string file) : file_(std::move(file)) {}

  const std::string& file() const { return file_; }
  const std::vector<Entry>& entries() const { return entries_; }
  const GgufValue* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Throws Error if the key is there already.
  void add(std::string key, GgufValue value);

  /// Whole numbers of any width; between `min` and `max`.
  std::int64_t integer(std::string_view key, std::int64_t min, std::int64_t max) const;
  std::int64_t integer_or(std::string_view key, std::int64_t absent, std::int64_t min, std::int64_t max) const;
  /// Finite; whole numbers are numbers too.
  double number(std::string_view key) const;
  double number_or(std::string_view key, double absent) const;
  bool boolean_or(std::string_view key, bool absent) const;
  const std::string& text(std::string_view key) const;
  std::string text_or(std::string_view key, std::string absent) const;
  /// Arrays; nullptr where the key is absent. numbers() gives none for an array of whole numbers.
  const std::vector<std::int64_t>* integers(std::string_view key) const;
  const std::vector<double>* numbers(std::string_view key) const;
  const std::vector<bool>* booleans(std::string_view key) const;
  const std::vector<std::string>* texts(std::string_view key) const;

  /// Throws "FILE: KEY is VALUE; expected EXPECTED" ("is absent" without the key).
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;

 private:
  template <typename Kind>
  const Kind* get(std::string_view key, std::string_view expected) const;

  std::string file_;
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_of_;  // key -> index in entries_
};

}  // namespace heddle
