#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace heddle {

/// A file that only grows. What append() was given is in the kernel's hands when it returns, so a killed process loses
/// none of it.
class AppendFile {
 public:
  /// Creates the file if it is absent, and cuts an existing one to its first `keep_bytes`.
  AppendFile(const std::filesystem::path& path, std::size_t keep_bytes);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  /// One write(), unless the system takes only a part.
  void append(std::string_view bytes);

 private:
  std::string name_;
  int descriptor_ = -1;
};

/// Writes all of `bytes`; false, with errno set, if the system refuses.
bool write_fully(int descriptor, std::string_view bytes);

}  // namespace heddle
