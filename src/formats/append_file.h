#pragma once

#include <filesystem>
#include <string_view>

#include "formats/open_file.h"

namespace heddle {

/// A file that only grows. What append() was given is in the kernel's hands when it returns, so a killed process loses
/// none of it; after sync() a power cut takes none of it either.
class AppendFile {
 public:
  /// Creates the file if it is absent, and cuts an existing one to its first `keep_bytes`.
  AppendFile(const std::filesystem::path& path, std::size_t keep_bytes);
  /// One write(), unless the system takes only a part.
  void append(std::string_view bytes);
  void sync() const { file_.sync(); }

 private:
  OpenFile file_;
};

}  // namespace heddle
