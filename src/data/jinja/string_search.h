#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/jinja/runtime.h"

/// Cutting and replacing as Python's str does. `most`: how many cuts at most; below 0: all.
namespace heddle::jinja {

std::vector<std::string_view> split(std::string_view text, std::string_view separator, std::int64_t most);
std::vector<std::string_view> split_from_right(std::string_view text, std::string_view separator, std::int64_t most);
/// At runs of white space; none at the ends.
std::vector<std::string_view> split_words(std::string_view text, std::int64_t most);
std::vector<std::string_view> split_words_from_right(std::string_view text, std::int64_t most);
std::vector<std::string_view> split_lines(std::string_view text, bool keeps_ends);
std::string replace_all(Runtime& runtime, std::string_view text, std::string_view from, std::string_view to,
                        std::int64_t most);

/// Every letter with case is of that case, and there is one.
bool is_upper_text(std::string_view text);
bool is_lower_text(std::string_view text);

}  // namespace heddle::jinja
