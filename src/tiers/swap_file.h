#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace heddle {

/// The nvme tier of one rank: a file without a name in a folder, so that it vanishes however the process ends. All its
/// space is taken at the start.
class SwapFile {
 public:
  /// No file where `bytes` is 0. Throws Error naming the folder if it cannot be written to, or with the bytes needed
  /// and free if they do not fit.
  SwapFile(const std::filesystem::path& folder, std::size_t bytes);
  ~SwapFile();
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;

  std::size_t bytes() const { return bytes_; }
  const std::filesystem::path& folder() const { return folder_; }
  /// Of the file system, now.
  std::uint64_t free_bytes() const;

  /// A descriptor for a transfer of so many bytes: past the page cache where the file system has such transfers and
  /// takes ones so aligned, else through it.
  int descriptor(std::uint64_t offset, const void* memory, std::size_t bytes) const;

  /// Of any range, also while transfers of others are under way; Error naming the folder and the bytes.
  void read(std::uint64_t offset, std::span<std::byte> target) const;

  /// The file as memory, for loading and saving. While no transfer is under way; drop_mapped() afterwards writes what
  /// was changed and gives the memory back.
  std::byte* mapped() const { return mapped_; }
  void drop_mapped();

 private:
  void open_direct();

  std::filesystem::path folder_;
  std::size_t bytes_;
  int file_ = -1, direct_file_ = -1;  // the second past the page cache; -1 where there is no such thing
  std::uint64_t offset_alignment_ = 4096, memory_alignment_ = 4096;  // of what goes past it
  std::byte* mapped_ = nullptr;
};

}  // namespace heddle
