#include "tiers/swap_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace heddle {
namespace {

constexpr std::uint64_t kPage = 4096;

std::uint64_t free_bytes(const std::filesystem::path& folder) {
  struct statvfs info {};
  return statvfs(folder.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize : 0;
}

bool is_aligned(std::uint64_t offset, const void* data, std::size_t bytes) {
  return (offset | reinterpret_cast<std::uintptr_t>(data) | bytes) % kPage == 0;
}

}  // namespace

SwapFile::SwapFile(const std::filesystem::path& folder, std::size_t bytes) : folder_(folder), bytes_(bytes) {
  if (bytes == 0) return;
  if (std::error_code error; !std::filesystem::is_directory(folder, error)) {
    fail("nvme_path: {} is no folder; expected one for {} of swapped tensors", folder.string(), format_bytes(bytes));
  }
  const std::uint64_t free = free_bytes(folder);
  const auto refuse_for_space = [&] {
    fail("nvme_path: {} has {} bytes free; the run needs {} bytes there", folder.string(), free, bytes);
  };
  if (free < bytes) refuse_for_space();
  file_ = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {  // a file system without such files
    std::string name = (folder / "heddle-swap-XXXXXX").string();
    file_ = mkostemp(name.data(), O_CLOEXEC);
    if (file_ >= 0) unlink(name.c_str());
  }
  if (file_ < 0) fail("nvme_path: {} cannot be written to: {}", folder.string(), std::strerror(errno));
  const int taken = posix_fallocate(file_, 0, static_cast<off_t>(bytes));
  if (taken == ENOSPC) refuse_for_space();
  if (taken != 0) fail("nvme_path: {}: {} bytes cannot be taken: {}", folder.string(), bytes, std::strerror(taken));
  const std::string again = "/proc/self/fd/" + std::to_string(file_);
  direct_file_ = open(again.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) fail("nvme_path: {}: cannot be mapped: {}", folder.string(), std::strerror(errno));
  mapped_ = static_cast<std::byte*>(mapped);
}

SwapFile::~SwapFile() {
  if (mapped_ != nullptr) munmap(mapped_, bytes_);
  if (direct_file_ >= 0) close(direct_file_);
  if (file_ >= 0) close(file_);
}

void SwapFile::read(std::uint64_t offset, std::span<std::byte> target) const {
  const bool is_direct = direct_file_ >= 0 && is_aligned(offset, target.data(), target.size());
  while (!target.empty()) {
    const ssize_t got =
        pread(is_direct ? direct_file_ : file_, target.data(), target.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      fail("nvme_path: {}: {} bytes at {} cannot be read: {}", folder_.string(), target.size(), offset,
           got == 0 ? "the file ends before them" : std::strerror(errno));
    }
    target = target.subspan(static_cast<std::size_t>(got));
    offset += static_cast<std::uint64_t>(got);
  }
}

void SwapFile::write(std::uint64_t offset, std::span<const std::byte> source) {
  const bool is_direct = direct_file_ >= 0 && is_aligned(offset, source.data(), source.size());
  while (!source.empty()) {
    const ssize_t put =
        pwrite(is_direct ? direct_file_ : file_, source.data(), source.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      fail("nvme_path: {}: {} bytes at {} cannot be written: {}; {} bytes are free", folder_.string(), source.size(),
           offset, std::strerror(put == 0 ? ENOSPC : errno), free_bytes(folder_));
    }
    source = source.subspan(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
}

void SwapFile::drop_mapped() {
  if (mapped_ == nullptr) return;
  if (msync(mapped_, bytes_, MS_SYNC) != 0)
    fail("nvme_path: {}: cannot be written: {}", folder_.string(), std::strerror(errno));
  madvise(mapped_, bytes_, MADV_DONTNEED);
  posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace heddle
