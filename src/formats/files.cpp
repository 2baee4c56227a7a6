#include "formats/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>

#include "base/error.h"
#include "formats/aside_file.h"

namespace heddle {
namespace {

void sync_path(const std::filesystem::path& path, int flags) {
  const int file = open(path.c_str(), flags | O_CLOEXEC);
  if (file < 0) fail("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  const int result = fsync(file);
  const int error = errno;
  close(file);
  // Some file systems cannot sync a folder and say so; everything else is a failure to store.
  if (result != 0 && error != EINVAL && error != EROFS)
    fail("{}: cannot be synced: {}", path.string(), std::strerror(error));
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path, std::size_t max_bytes) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) fail("{}: is a folder; expected a file", path.string());
  std::ifstream file(path, std::ios::binary);
  if (!file) fail("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  std::string text;
  std::string piece(std::size_t{1} << 16, '\0');
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0) {
    text.append(piece, 0, static_cast<std::size_t>(file.gcount()));
    if (text.size() > max_bytes) fail("{}: is longer than {} bytes", path.string(), max_bytes);
  }
  if (file.bad()) fail("{}: cannot be read: {}", path.string(), std::strerror(errno));
  return text;
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
  AsideFile file(path);
  file.append(std::as_bytes(std::span(text)));
  file.commit();
}

void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error || !std::filesystem::is_directory(path)) {
    fail("{}: cannot be made a folder: {}", path.string(), error ? error.message() : "a file is in the way");
  }
}

void sync_folder(const std::filesystem::path& path) { sync_path(path, O_RDONLY | O_DIRECTORY); }
void sync_file(const std::filesystem::path& path) { sync_path(path, O_RDONLY); }

}  // namespace heddle
