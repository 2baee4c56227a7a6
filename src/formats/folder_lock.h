#pragma once

#include <chrono>
#include <filesystem>
#include <optional>

#include "formats/open_file.h"

namespace heddle {

/// Held by the one process that may write to a folder; the system drops it when that process ends, however it ends.
/// Where the file system has no locks it holds nothing.
class FolderLock {
 public:
  /// Waits for another holder up to `patience`, since one that was killed may take a while to go; then throws Error
  /// "FOLDER: ...".
  explicit FolderLock(const std::filesystem::path& folder, std::chrono::milliseconds patience);

 private:
  std::optional<OpenFile> folder_;
};

}  // namespace heddle
