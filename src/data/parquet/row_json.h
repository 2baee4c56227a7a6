#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace arrow {
class Array;
class StructArray;
}  // namespace arrow

namespace heddle {

/// Appends the text as a JSON string.
void append_json_string(std::string_view text, std::string& out);

/// Appends one value as JSON and returns true; or nothing, and false, where it is null (or NaN or infinite, for which
/// JSON has no number). Lists keep their nulls, structs leave members out that are null. Text is copied as it is, sound
/// UTF-8 or not. Values that JSON does not know (timestamps, decimals, ...) become text. Throws std::runtime_error.
bool append_json(const arrow::Array& values, std::int64_t index, std::string& out);

/// Appends what is not null of a struct as the members of an object: "name":value, each with a comma behind it.
void append_members(const arrow::StructArray& structs, std::int64_t index, std::string& out);

}  // namespace heddle
