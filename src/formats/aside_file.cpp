#include "formats/aside_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "formats/files.h"

namespace heddle {
namespace {

constexpr const char* kSuffix = ".partial";

/// The lock is the mark of a living writer: the system drops it with the process. Some file systems have none.
bool lock(const OpenFile& file) { return ::flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0; }

bool has_name(const OpenFile& file) {
  struct stat status {};
  return ::fstat(file.descriptor(), &status) == 0 && status.st_nlink > 0;
}

/// A partial file that no other writer has. Between making and locking it, remove_abandoned() of another process may
/// take it for abandoned: then it has no name any more.
OpenFile create_own(const std::filesystem::path& path) {
  static std::atomic<unsigned> count{0};
  for (;;) {
    const std::string name = fmt::format("{}.{}-{}{}", path.string(), ::getpid(), count++, kSuffix);
    if (std::filesystem::exists(std::filesystem::symlink_status(name))) continue;
    OpenFile file(name, O_RDWR | O_CREAT | O_EXCL);
    lock(file);
    if (has_name(file)) return file;
  }
}

OpenFile create(const std::filesystem::path& path, AsideFile::Writers writers) {
  if (writers == AsideFile::Writers::shared) return create_own(path);
  OpenFile file(path.string() + kSuffix, O_RDWR | O_CREAT | O_TRUNC);
  lock(file);
  return file;
}

}  // namespace

AsideFile::AsideFile(std::filesystem::path path, Writers writers)
    : path_(std::move(path)), file_(create(path_, writers)), partial_(file_->path()) {}

AsideFile::~AsideFile() {
  if (!is_committed_) ::unlink(partial_.c_str());
}

void AsideFile::append(std::span<const std::byte> bytes) {
  file_->write_at(size_, bytes);
  size_ += bytes.size();
}

void AsideFile::commit() {
  file_->sync();
  commit_unsynced();
  sync_folder(std::filesystem::absolute(path_).parent_path());
}

void AsideFile::commit_unsynced() {
  // Renamed while it is open and locked, so that nobody takes it for abandoned.
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) {
    fail("{}: cannot be renamed to {}: {}", partial_.string(), path_.string(), std::strerror(errno));
  }
  is_committed_ = true;
  file_->close();
  file_.reset();
}

void remove_abandoned(const std::filesystem::path& folder) {
  std::error_code code;
  for (std::filesystem::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    const std::filesystem::path& path = entry->path();
    std::error_code status;
    if (path.extension() != kSuffix || !entry->is_regular_file(status)) continue;
    try {
      const OpenFile file(path, O_RDONLY | O_NONBLOCK);
      if (lock(file)) ::unlink(path.c_str());
    } catch (const Error&) {  // gone by now, or not ours to open
    }
  }
}

}  // namespace heddle
