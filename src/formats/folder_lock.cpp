#include "formats/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <thread>

#include "base/error.h"

namespace heddle {

FolderLock::FolderLock(const std::filesystem::path& folder, std::chrono::milliseconds patience)
    : folder_(std::in_place, folder, O_RDONLY | O_DIRECTORY) {
  using Clock = std::chrono::steady_clock;
  for (const auto end = Clock::now() + patience; ::flock(folder_->descriptor(), LOCK_EX | LOCK_NB) != 0;) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return;
    if (Clock::now() >= end) fail("{}: another run writes to it; expected a folder of its own", folder.string());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace heddle
