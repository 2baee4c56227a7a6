#include "tiers/arena.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/error.h"
#include "base/text.h"

namespace heddle {
namespace {

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

std::size_t meminfo_available() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  std::size_t kilobytes = 0;
  while (file >> key >> kilobytes) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    std::getline(file, unit);
  }
  return kUnlimited;
}

std::size_t read_number(const char* path) {
  std::ifstream file(path);
  std::size_t value = 0;
  return file >> value ? value : kUnlimited;  // "max" is no number
}

std::size_t cgroup_available() {
  const std::size_t limit = read_number("/sys/fs/cgroup/memory.max");
  const std::size_t used = read_number("/sys/fs/cgroup/memory.current");
  if (limit == kUnlimited || used == kUnlimited) return kUnlimited;
  return limit > used ? limit - used : 0;
}

std::size_t address_space_available() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages;
  const std::size_t used = pages * 4096;
  return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

}  // namespace

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

std::size_t available_memory() {
  return std::min({meminfo_available(), cgroup_available(), address_space_available()});
}

}  // namespace heddle
