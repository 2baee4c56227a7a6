#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace heddle {

using Json = nlohmann::ordered_json;

/// Strict JSON: UTF-8, no duplicate keys, no NaN or infinity, at most `max_depth` levels. Throws Error "NAME: line L:
/// ...".
Json parse_json(std::string_view text, const std::string& name, int max_depth = 200);
Json read_json_file(const std::filesystem::path& path, std::size_t max_bytes = std::size_t{256} << 20);

}  // namespace heddle
