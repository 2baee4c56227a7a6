#include "checkpoint/direct_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "checkpoint/checked_file.h"

namespace heddle {
namespace {

/// False where the file system refuses.
bool set_direct(const OpenFile& file, bool is_direct) {
  const int flags = ::fcntl(file.descriptor(), F_GETFL);
  return flags >= 0 && ::fcntl(file.descriptor(), F_SETFL, is_direct ? flags | O_DIRECT : flags & ~O_DIRECT) == 0;
}

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + DirectFile::kPage - 1) / DirectFile::kPage * DirectFile::kPage;
}

bool is_aligned(std::uint64_t offset, const std::byte* data) {
  return (offset | reinterpret_cast<std::uintptr_t>(data)) % DirectFile::kPage == 0;
}

}  // namespace

DirectFile::DirectFile(OpenFile file) : file_(std::move(file)) { set_direct(file_, true); }

DirectFile::DirectFile(const std::filesystem::path& path) : DirectFile(OpenFile(path, O_RDONLY)) {}

DirectFile DirectFile::create(const std::filesystem::path& path, std::uint64_t bytes) {
  return DirectFile(create_file(path, bytes));
}

bool DirectFile::uses_cache() const { return (::fcntl(file_.descriptor(), F_GETFL) & O_DIRECT) == 0; }

// Calls transfer(done) until `bytes` are done. A file system may take O_DIRECT when a file is opened and refuse it
/// here, or ask for larger blocks.
template <typename Transfer>
void DirectFile::move(std::uint64_t offset, std::size_t bytes, const char* what, Transfer&& transfer) {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t count = transfer(done);
    if (count > 0) {
      done += static_cast<std::size_t>(count);
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EINVAL && set_direct(file_, false)) {
      errno = 0;
      if (transfer(done) >= 0) continue;
    }
    fail("{}: {} bytes at byte {} cannot be {}: {}", file_.path(), bytes - done, offset + done, what,
         count == 0 ? "the file ends before them" : std::strerror(errno));
  }
}

void DirectFile::write(std::uint64_t offset, std::span<std::byte> bytes) {
  HEDDLE_CHECK(is_aligned(offset, bytes.data()));
  const std::size_t padded = whole_pages(bytes.size());
  std::memset(bytes.data() + bytes.size(), 0, padded - bytes.size());
  move(offset, padded, "written", [&](std::size_t done) {
    return ::pwrite(file_.descriptor(), bytes.data() + done, padded - done, static_cast<off_t>(offset + done));
  });
  // Through the cache the disk begins now, not at the sync; where it cannot, the sync does all.
  if (uses_cache())
    ::sync_file_range(file_.descriptor(), static_cast<off_t>(offset), static_cast<off_t>(padded),
                      SYNC_FILE_RANGE_WRITE);
}

void DirectFile::read(std::uint64_t offset, std::span<std::byte> target) {
  HEDDLE_CHECK(is_aligned(offset, target.data()));
  move(offset, target.size(), "read", [&](std::size_t done) {
    return ::pread(file_.descriptor(), target.data() + done, whole_pages(target.size()) - done,
                   static_cast<off_t>(offset + done));
  });
}

void DirectFile::finish(std::uint64_t bytes) {
  if (::ftruncate(file_.descriptor(), static_cast<off_t>(bytes)) != 0)
    fail("{}: cannot be cut to {} bytes: {}", file_.path(), bytes, std::strerror(errno));
  file_.sync();
}

}  // namespace heddle
