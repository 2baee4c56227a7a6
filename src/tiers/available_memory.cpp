#include "tiers/available_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#include "base/control_groups.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();

/// The number behind a key in a file of lines `key number ...`.
std::size_t read_entry(const fs::path& path, std::string_view wanted) {
  std::ifstream file(path);
  std::string key, rest;
  std::size_t value = 0;
  while (file >> key >> value) {
    if (key == wanted) return value;
    std::getline(file, rest);
  }
  return kUnlimited;
}

std::size_t read_number(const fs::path& path) {
  std::ifstream file(path);
  std::size_t value = 0;
  return file >> value ? value : kUnlimited;  // "max" is no number
}

std::size_t system_available() {
  const std::size_t kibibytes = read_entry("/proc/meminfo", "MemAvailable:");
  return kibibytes == kUnlimited ? kUnlimited : kibibytes * 1024;
}

/// What the files of a cgroup's folder are called.
struct CgroupNames {
  std::string_view limit, used, cache;  // cache: in memory.stat, pages of files that the kernel gives back when asked
};
constexpr CgroupNames kVersion1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr CgroupNames kVersion2{"memory.max", "memory.current", "inactive_file"};

std::size_t room_in(const ControlGroup& group) {
  const CgroupNames& names = group.version == 2 ? kVersion2 : kVersion1;
  const std::size_t limit = read_number(group.folder / names.limit), used = read_number(group.folder / names.used);
  if (limit == kUnlimited || used == kUnlimited) return kUnlimited;
  const std::size_t cache = read_entry(group.folder / "memory.stat", names.cache);
  const std::size_t held = used - (cache == kUnlimited ? 0 : std::min(cache, used));
  return limit > held ? limit - held : 0;
}

/// What a limit on this process leaves; `column` of /proc/self/statm has the pages that count against it.
std::size_t room_under(decltype(RLIMIT_AS) resource, std::size_t column) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  std::ifstream file("/proc/self/statm");
  std::array<std::size_t, 7> pages{};
  for (auto& count : pages) file >> count;
  const std::size_t used = pages[column] * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

}  // namespace

std::size_t available_in_cgroups(const fs::path& membership, const fs::path& root) {
  std::size_t room = kUnlimited;
  for (const ControlGroup& group : control_groups("memory", membership, root)) room = std::min(room, room_in(group));
  return room;
}

std::size_t available_memory() {
  constexpr std::size_t kAll = 0, kData = 5;
  return std::min({system_available(), available_in_cgroups("/proc/self/cgroup", "/sys/fs/cgroup"),
                   room_under(RLIMIT_AS, kAll), room_under(RLIMIT_DATA, kData)});
}

}  // namespace heddle
