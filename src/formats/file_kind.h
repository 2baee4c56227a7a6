#pragma once

#include <filesystem>

namespace heddle {

/// A file that is to be read as GGUF: by its name, or by its first bytes whatever its name. False for folders.
bool is_gguf_file(const std::filesystem::path& path);

}  // namespace heddle
