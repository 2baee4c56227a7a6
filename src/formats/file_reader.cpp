#include "formats/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace heddle {
namespace {

constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;

struct stat status_of(const OpenFile& file) {
  struct stat status {};
  if (::fstat(file.descriptor(), &status) != 0) fail("{}: cannot be read: {}", file.path(), std::strerror(errno));
  return status;
}

std::int64_t modification_of(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

}  // namespace

// O_NONBLOCK: opening a pipe that nobody writes to must not hang.
FileReader::FileReader(const std::filesystem::path& path) : file_(path, O_RDONLY | O_NONBLOCK) {
  const struct stat status = status_of(file_);
  if (S_ISDIR(status.st_mode)) fail("{}: is a folder, no regular file", file_.path());
  if (!S_ISREG(status.st_mode)) fail("{}: is no regular file", file_.path());
  size_ = static_cast<std::uint64_t>(status.st_size);
  modified_ = modification_of(status);
}

void FileReader::read(std::uint64_t offset, std::span<std::byte> target) const {
  HEDDLE_CHECK(offset <= size_ && target.size() <= size_ - offset);
  if (file_.read_some(offset, target) < target.size()) {
    fail("{}: has shrunk from {} to {} bytes since it was opened", path(), size_, file_.size());
  }
}

void FileReader::read_from(std::uint64_t offset, const std::function<void(std::string_view)>& use) const {
  std::string block(static_cast<std::size_t>(std::min(kBlock, size_)), '\0');
  for (std::uint64_t at = offset; at < size_; at += block.size()) {
    block.resize(static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), size_ - at)));
    read(at, std::span<char>(block));
    use(block);
  }
}

void FileReader::check_unchanged() const {
  const struct stat status = status_of(file_);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size != size_) fail("{}: has changed from {} to {} bytes while it was read", path(), size_, size);
  if (modification_of(status) != modified_) fail("{}: was written to while it was read", path());
}

}  // namespace heddle
