#pragma once

#include <cstddef>
#include <string>

namespace heddle {

/// One stretch of zeroed memory for a tier, taken once before the run; none for 0 bytes. Throws Error naming `what` and
/// the bytes if the system will not give them.
class Arena {
 public:
  Arena(std::size_t bytes, const std::string& what);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace heddle
