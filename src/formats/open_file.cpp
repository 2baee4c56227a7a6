#include "formats/open_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace heddle {

OpenFile::OpenFile(const std::filesystem::path& path, int flags)
    : path_(path.string()), descriptor_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) {
    fail("{}: cannot be {}: {}", path_, (flags & O_CREAT) != 0 ? "created" : "opened", std::strerror(errno));
  }
}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

OpenFile& OpenFile::operator=(OpenFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

std::uint64_t OpenFile::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) fail("{}: cannot be read: {}", path_, std::strerror(errno));
  return static_cast<std::uint64_t>(status.st_size);
}

std::size_t OpenFile::read_some(std::uint64_t offset, std::span<std::byte> target) const {
  std::size_t done = 0;
  while (done < target.size()) {
    const ssize_t count =
        ::pread(descriptor_, target.data() + done, target.size() - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail("{}: cannot be read at byte {}: {}", path_, offset + done, std::strerror(errno));
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

void OpenFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      fail("{}: writing {} bytes at byte {} failed: {}", path_, bytes.size(), offset, std::strerror(errno));
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void OpenFile::write(std::span<const std::byte> bytes) const {
  if (!write_fully(descriptor_, {reinterpret_cast<const char*>(bytes.data()), bytes.size()})) {
    fail("{}: cannot be written: {}", path_, std::strerror(errno));
  }
}

void OpenFile::sync() const {
  if (::fsync(descriptor_) != 0) fail("{}: cannot be synced: {}", path_, std::strerror(errno));
}

void OpenFile::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0) fail("{}: closing failed: {}", path_, std::strerror(errno));
}

bool write_fully(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace heddle
