#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace heddle {

/// The nvme tier of one rank: a file without a name in a folder, so that it vanishes however the process ends. All its
/// space is taken at the start. Transfers go past the page cache where the file system and their alignment allow it.
class SwapFile {
 public:
  /// No file where `bytes` is 0. Throws Error naming the folder if it cannot be written to, or with the bytes needed
  /// and free if they do not fit.
  SwapFile(const std::filesystem::path& folder, std::size_t bytes);
  ~SwapFile();
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;

  std::size_t bytes() const { return bytes_; }
  /// Transfers between memory and the file at `offset`; whole, or Error naming the folder and the bytes.
  void read(std::uint64_t offset, std::span<std::byte> target) const;
  void write(std::uint64_t offset, std::span<const std::byte> source);

  /// The file as memory, for loading and saving. While no transfer is under way; drop_mapped() afterwards writes what
  /// was changed and gives the memory back.
  std::byte* mapped() const { return mapped_; }
  void drop_mapped();

 private:
  std::filesystem::path folder_;
  std::size_t bytes_;
  int file_ = -1, direct_file_ = -1;  // the second without page cache; -1 where the file system has no such thing
  std::byte* mapped_ = nullptr;
};

}  // namespace heddle
