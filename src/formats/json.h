#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace heddle {

/// Keeps the order of keys. A look-up is linear in the number of keys: iterate over large objects (vocabularies).
using Json = nlohmann::ordered_json;

/// What becomes of NaN, Infinity and -Infinity, which are no JSON but which Python writes: an error, or texts of that
/// name, so that a reader of numbers refuses them by their key and nobody else minds.
enum class NonFinite { refuse, as_text };

/// Strict JSON (RFC 8259): UTF-8, no duplicate keys, no lone surrogates, nothing behind the value, at most `max_depth`
/// levels of arrays and objects. Throws Error "NAME: line L: ...".
/// An integer beyond 64 bits becomes a floating-point number, so that a reader of integers can refuse it by its key.
Json parse_json(std::string_view text, const std::string& name, int max_depth = 200,
                NonFinite non_finite = NonFinite::refuse);

/// Reads and parses a file; `name` is its path.
Json read_json_file(const std::filesystem::path& path, std::size_t max_bytes = std::size_t{256} << 20);

/// Outside text as an error message shows it: ASCII on one line, cut to about `max_length` characters.
std::string text_excerpt(std::string_view text, std::size_t max_length = 100);

/// The value as an error message shows it: JSON on one line, ASCII, cut to about `max_length` characters.
std::string json_excerpt(const Json& value, std::size_t max_length = 60);

}  // namespace heddle
