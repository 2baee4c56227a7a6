#include "formats/file_kind.h"

#include <array>
#include <fstream>
#include <string_view>

namespace heddle {

bool is_gguf_file(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  if (path.extension() == ".gguf") return true;
  std::array<char, 4> magic{};
  std::ifstream file(path, std::ios::binary);
  return file.read(magic.data(), magic.size()) && std::string_view(magic.data(), magic.size()) == "GGUF";
}

}  // namespace heddle
