#include "data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace heddle {

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a pipe that nobody writes to must not hang.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) fail("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  struct stat status {};
  const bool regular = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  void* mapped = nullptr;
  if (regular && status.st_size > 0) {
    mapped = ::mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
  }
  const int problem = errno;
  ::close(file);
  if (!regular) fail("{}: is no regular file", path.string());
  if (mapped == MAP_FAILED) fail("{}: cannot be mapped into memory: {}", path.string(), std::strerror(problem));
  data_ = static_cast<const std::byte*>(mapped);
  size_ = static_cast<std::size_t>(status.st_size);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace heddle
