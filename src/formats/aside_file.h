#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

#include "formats/open_file.h"

namespace heddle {

/// A file being written under another name beside its own, PATH.partial. It appears under its own name, whole, when
/// commit() has synced and renamed it; given up, it leaves nothing. After a kill the partial file lies there: the next
/// AsideFile of that path overwrites it, and remove_abandoned() finds it.
class AsideFile {
 public:
  /// shared: others may write the same path at the same time; each then has a partial file of its own.
  enum class Writers { one, shared };

  /// Throws Error if the partial file cannot be created, as the members below if it cannot be written.
  explicit AsideFile(std::filesystem::path path, Writers writers = Writers::one);
  ~AsideFile();
  AsideFile(const AsideFile&) = delete;
  AsideFile& operator=(const AsideFile&) = delete;

  /// Behind what was appended before.
  void append(std::span<const std::byte> bytes);
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes) { file_->write_at(offset, bytes); }
  std::uint64_t size() const { return size_; }  ///< bytes appended
  bool is_open() const { return file_.has_value(); }
  const std::filesystem::path& partial_path() const { return partial_; }

  /// Syncs, renames, and syncs the folder: the path then holds these bytes, a power cut notwithstanding.
  void commit();
  /// Renames alone: for what can be made again, and whose readers notice a power cut by its checksum.
  void commit_unsynced();

 private:
  std::filesystem::path path_;
  std::optional<OpenFile> file_;
  std::filesystem::path partial_;
  std::uint64_t size_ = 0;
  bool is_committed_ = false;
};

/// Removes the partial files of a folder that no living process writes. Says nothing of what it cannot remove.
void remove_abandoned(const std::filesystem::path& folder);

}  // namespace heddle
