#include "tiers/swap_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace heddle {
namespace {

std::uint64_t free_bytes_in(const std::filesystem::path& folder) {
  struct statvfs info {};
  return statvfs(folder.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.f_bavail) * info.f_frsize : 0;
}

}  // namespace

SwapFile::SwapFile(const std::filesystem::path& folder, std::size_t bytes) : folder_(folder), bytes_(bytes) {
  if (bytes == 0) return;
  if (std::error_code error; !std::filesystem::is_directory(folder, error)) {
    fail("nvme_path: {} is no folder; expected one for {} of swapped tensors", folder.string(), format_bytes(bytes));
  }
  const std::uint64_t free = free_bytes_in(folder);
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
  open_direct();
  void* const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) {
    fail("nvme_path: {}: its {} bytes cannot be mapped: {}{}", folder.string(), bytes, std::strerror(errno),
         errno == ENOMEM ? "; a limit on address space (ulimit -v) has to leave room for them" : "");
  }
  mapped_ = static_cast<std::byte*>(mapped);
}

SwapFile::~SwapFile() {
  if (mapped_ != nullptr) munmap(mapped_, bytes_);
  if (direct_file_ >= 0) close(direct_file_);
  if (file_ >= 0) close(file_);
}

void SwapFile::open_direct() {
  const std::string again = "/proc/self/fd/" + std::to_string(file_);
  direct_file_ = open(again.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
#ifdef STATX_DIOALIGN  // Linux 6.1; before, a page serves all file systems
  struct statx info {};
  if (statx(file_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 && (info.stx_mask & STATX_DIOALIGN) != 0 &&
      info.stx_dio_offset_align > 0) {
    offset_alignment_ = info.stx_dio_offset_align;
    memory_alignment_ = info.stx_dio_mem_align;
  }
#endif
}

std::uint64_t SwapFile::free_bytes() const { return free_bytes_in(folder_); }

int SwapFile::descriptor(std::uint64_t offset, const void* memory, std::size_t bytes) const {
  const bool is_aligned =
      (offset | bytes) % offset_alignment_ == 0 && reinterpret_cast<std::uintptr_t>(memory) % memory_alignment_ == 0;
  return direct_file_ >= 0 && is_aligned ? direct_file_ : file_;
}

/// By way of whole pages, so that ranges of any alignment go past the page cache.
void SwapFile::read(std::uint64_t offset, std::span<std::byte> target) const {
  constexpr std::size_t kPage = 4096, kBounced = std::size_t{256} << 10;
  std::vector<std::byte> memory(kBounced + kPage);
  const std::size_t skipped = (kPage - reinterpret_cast<std::uintptr_t>(memory.data()) % kPage) % kPage;
  const auto bounce = std::span(memory).subspan(skipped, kBounced);
  while (!target.empty()) {
    const std::uint64_t first = offset / kPage * kPage;
    const std::size_t before = offset - first, part = std::min(target.size(), kBounced - before);
    const std::size_t pages = (before + part + kPage - 1) / kPage * kPage;
    const ssize_t got = pread(descriptor(first, bounce.data(), pages), bounce.data(), pages, static_cast<off_t>(first));
    if (got < 0 && errno == EINTR) continue;
    if (got < static_cast<ssize_t>(before + part)) {
      fail("nvme_path: {}: {} bytes at {} cannot be read: {}", folder_.string(), part, offset,
           got >= 0 ? "the file ends before them" : std::strerror(errno));
    }
    std::memcpy(target.data(), bounce.data() + before, part);
    target = target.subspan(part);
    offset += part;
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
