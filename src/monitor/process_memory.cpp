#include "monitor/process_memory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace heddle {

std::uint64_t anonymous_bytes() {
  // Read without the heap, whose size is in question.
  std::array<char, 8192> text{};
  const int file = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t size = ::read(file, text.data(), text.size());
  ::close(file);
  if (size <= 0) return 0;
  std::string_view status(text.data(), static_cast<std::size_t>(size));
  constexpr std::string_view kKey = "RssAnon:";
  const auto found = status.find(kKey);
  if (found == std::string_view::npos) return 0;
  status.remove_prefix(found + kKey.size());
  status.remove_prefix(std::min(status.find_first_of("0123456789"), status.size()));
  std::uint64_t kilobytes = 0;
  std::from_chars(status.data(), status.data() + status.size(), kilobytes);
  return kilobytes * 1024;
}

std::uint64_t MemoryWatch::excess(std::uint64_t held) const {
  constexpr std::uint64_t kSlack = std::uint64_t{32} << 20;
  const std::uint64_t expected = baseline_ + planned_;
  if (held <= expected + std::max(planned_ / 50, kSlack)) return 0;
  return held - expected;
}

bool MemoryWatch::is_news(std::uint64_t excess) {
  if (excess == 0 || excess < 2 * said_) return false;
  said_ = excess;
  return true;
}

}  // namespace heddle
