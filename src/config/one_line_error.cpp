#include "config/one_line_error.h"

namespace heddle {

std::string one_line(std::string_view text) {
  constexpr std::size_t kMostBytes = 2000;
  std::string line;
  for (const char c : text.substr(0, kMostBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      line += fmt::format("\\x{:02x}", byte);
    } else {
      line += c;
    }
  }
  return text.size() > kMostBytes ? line + "..." : line;
}

}  // namespace heddle
