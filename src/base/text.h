#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

/// The candidate with the smallest edit distance (Damerau, Levenshtein) to `name`, or "" if none is near enough to be a
/// misspelling.
std::string nearest_name(std::string_view name, std::span<const std::string_view> candidates);

/// "; did you mean NEAREST?" or "".
std::string did_you_mean(std::string_view name, std::span<const std::string_view> candidates);

/// 17179869184 as "16.0 GiB".
std::string format_bytes(std::uint64_t bytes);
/// 8030261248 as "8,030,261,248".
std::string format_count(std::uint64_t count);
/// "1 row", "8,030 rows": of nouns whose plural takes an s.
std::string format_count(std::uint64_t count, std::string_view noun);

}  // namespace heddle
