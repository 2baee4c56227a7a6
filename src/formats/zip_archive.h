#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "formats/file_reader.h"

namespace heddle {

/// The stored (not compressed) entries of a zip archive, ZIP64 included, such as PyTorch writes.
/// https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
class ZipArchive {
 public:
  struct Entry {
    std::uint64_t begin = 0, bytes = 0;  // in the file
    std::uint32_t crc = 0;               // CRC-32 of the bytes; 0: PyTorch was told not to compute it
  };
  /// Reads the directory. The reader must outlive the archive. Throws Error naming the file for what is no archive, or
  /// has an entry that is compressed, encrypted or lies outside the file.
  explicit ZipArchive(const FileReader& file);

  const std::map<std::string, Entry>& entries() const { return entries_; }
  /// Null where there is none of that name.
  const Entry* find(const std::string& name) const;

  /// All of an entry, for small ones: throws Error where the checksum differs, or for more than `most` bytes.
  std::string read(const std::string& name, std::uint64_t most) const;
  /// Reads all of an entry; throws Error where the checksum differs.
  void verify(const std::string& name) const;

 private:
  void compare(const std::string& name, std::uint32_t crc) const;

  const FileReader& file_;
  std::map<std::string, Entry> entries_;
};

/// Whether the file begins like an archive.
bool is_zip(const FileReader& file);

}  // namespace heddle
