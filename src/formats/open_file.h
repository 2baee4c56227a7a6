#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace heddle {

/// A file that is open, closed with the object. Files are read and written by system calls, never mapped: one that
/// shrinks meanwhile then gives an Error, not a signal. Members throw Error "PATH: ..." with the system's reason; all
/// const ones may be called from many threads at once.
class OpenFile {
 public:
  /// `flags` and the permissions of a new file are those of open(2).
  OpenFile(const std::filesystem::path& path, int flags);
  ~OpenFile();
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&& other) noexcept;

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  std::uint64_t size() const;

  /// Fewer than asked for only at the end of the file.
  std::size_t read_some(std::uint64_t offset, std::span<std::byte> target) const;
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) const;
  /// At the file's own position: for pipes, and for O_APPEND.
  void write(std::span<const std::byte> bytes) const;
  /// What was written so far outlasts a power cut.
  void sync() const;
  /// Some file systems report a failed write only here.
  void close();

 private:
  std::string path_;
  int descriptor_ = -1;
};

/// Writes all of `bytes`; false, with errno set, if the system refuses.
bool write_fully(int descriptor, std::string_view bytes);

}  // namespace heddle
