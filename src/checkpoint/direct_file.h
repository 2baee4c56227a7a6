#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include "formats/open_file.h"

namespace heddle {

/// A large file that is written once or read once, past the page cache, which would cost a copy and push out what
/// others want to keep. On a file system that cannot do that it goes through the cache. Offsets are multiples of kPage,
/// memory begins at one and has room up to the next. May be used by many threads at once.
class DirectFile {
 public:
  static constexpr std::size_t kPage = 4096;

  /// Creates or empties a file and reserves `bytes`, where the file system can: a full disk shows here.
  static DirectFile create(const std::filesystem::path& path, std::uint64_t bytes);
  explicit DirectFile(const std::filesystem::path& path);

  std::uint64_t size() const { return file_.size(); }
  /// Writes; what is behind `bytes` in its last page is overwritten with zeros in memory, and cut off by finish().
  void write(std::uint64_t offset, std::span<std::byte> bytes);
  /// Fills `target`; Error if the file is too short.
  void read(std::uint64_t offset, std::span<std::byte> target);
  /// Gives the file its size, and makes it last through a power cut.
  void finish(std::uint64_t bytes);

 private:
  explicit DirectFile(OpenFile file);
  template <typename Transfer>
  void move(std::uint64_t offset, std::size_t bytes, const char* what, Transfer&& transfer);
  bool uses_cache() const;

  OpenFile file_;
};

}  // namespace heddle
