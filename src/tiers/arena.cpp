#include "tiers/arena.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/text.h"

namespace heddle {

Arena::Arena(std::size_t bytes, const std::string& what) : bytes_(bytes) {
  if (bytes == 0) return;
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    fail("{}: the system refused {} of memory: {}", what, format_bytes(bytes_), std::strerror(errno));
  }
  // Huge pages save most of the cost of address translation in the products; a kernel without them loses nothing.
  madvise(memory, bytes_, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(memory);
}

Arena::~Arena() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace heddle
