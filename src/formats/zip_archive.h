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
  };
  /// Reads the directory. The reader must outlive the archive. Throws Error naming the file for what is no archive, or
  /// has an entry that is compressed, encrypted or lies outside the file.
  explicit ZipArchive(const FileReader& file);

  const std::map<std::string, Entry>& entries() const { return entries_; }
  /// Null where there is none of that name.
  const Entry* find(const std::string& name) const;

 private:
  std::map<std::string, Entry> entries_;
};

/// Whether the file begins like an archive.
bool is_zip(const FileReader& file);

}  // namespace heddle
