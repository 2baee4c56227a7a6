#pragma once

#include <string>
#include <string_view>

#include "formats/json.h"

namespace heddle {

/// "KEY: VALUE" and a line end, as YAML that every reader takes for the same value: objects as blocks, lists in
/// brackets, text in quotes where it could be taken for something else.
std::string yaml_entry(std::string_view key, const Json& value);

}  // namespace heddle
