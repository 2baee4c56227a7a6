#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace heddle {

/// A regular file mapped into memory for reading; its pages are the kernel's to keep or drop.
class MappedFile {
 public:
  /// Throws Error "PATH: ..." if it is absent, unreadable, or no regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace heddle
