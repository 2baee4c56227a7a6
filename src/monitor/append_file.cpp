#include "monitor/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/error.h"

namespace heddle {
namespace {

std::string reason() { return std::generic_category().message(errno); }

}  // namespace

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

AppendFile::AppendFile(const std::filesystem::path& path, std::size_t keep_bytes) : name_(path.string()) {
  descriptor_ = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail("{}: cannot be opened for writing: {}", name_, reason());
  if (::ftruncate(descriptor_, static_cast<off_t>(keep_bytes)) != 0) {
    const auto why = reason();
    ::close(descriptor_);
    fail("{}: cannot be cut to {} bytes: {}", name_, keep_bytes, why);
  }
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::append(std::string_view bytes) {
  if (!write_fully(descriptor_, bytes)) fail("{}: cannot be written: {}", name_, reason());
}

}  // namespace heddle
