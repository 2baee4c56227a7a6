#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "formats/open_file.h"

namespace heddle {

/// A regular file opened for reading, as it was when it was opened: what others do to it meanwhile is an Error that
/// says so. May be read from many threads at once.
class FileReader {
 public:
  /// Throws Error "PATH: ..." if it is absent, unreadable, or no regular file.
  explicit FileReader(const std::filesystem::path& path);

  const std::string& path() const { return file_.path(); }
  /// When it was opened.
  std::uint64_t size() const { return size_; }
  /// Fills `target` from byte `offset` on; both lie within size(). Throws Error if the file is too short by now.
  void read(std::uint64_t offset, std::span<std::byte> target) const;
  void read(std::uint64_t offset, std::span<char> target) const { read(offset, std::as_writable_bytes(target)); }
  /// Calls use(bytes) for all bytes from `offset` on, block by block.
  void read_from(std::uint64_t offset, const std::function<void(std::string_view)>& use) const;
  /// Throws Error if the file was written to, or replaced in place, since it was opened.
  void check_unchanged() const;

 private:
  OpenFile file_;
  std::uint64_t size_ = 0;
  std::int64_t modified_ = 0;  // nanoseconds
};

}  // namespace heddle
