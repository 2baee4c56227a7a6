#include "formats/append_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace heddle {

AppendFile::AppendFile(const std::filesystem::path& path, std::size_t keep_bytes)
    : file_(path, O_WRONLY | O_CREAT | O_APPEND) {
  if (::ftruncate(file_.descriptor(), static_cast<off_t>(keep_bytes)) != 0) {
    fail("{}: cannot be cut to {} bytes: {}", file_.path(), keep_bytes, std::strerror(errno));
  }
}

void AppendFile::append(std::string_view bytes) { file_.write(std::as_bytes(std::span(bytes))); }

}  // namespace heddle
