#include "base/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "base/control_groups.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// A group's limit in cores: cpu.max of version 2, "QUOTA PERIOD" or "max PERIOD"; of version 1 two files, with -1 for
/// none.
std::optional<double> quota_of_group(const ControlGroup& group) {
  double quota = 0, period = 0;
  if (group.version == 2) {
    std::string text;
    if (!(std::ifstream(group.folder / "cpu.max") >> text >> period)) return std::nullopt;
    if (!(std::istringstream(text) >> quota)) return std::nullopt;
  } else if (!(std::ifstream(group.folder / "cpu.cfs_quota_us") >> quota) ||
             !(std::ifstream(group.folder / "cpu.cfs_period_us") >> period)) {
    return std::nullopt;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

}  // namespace

double cpu_quota(const fs::path& groups, const fs::path& root) {
  double least = 0;
  for (const ControlGroup& group : control_groups("cpu", groups, root)) {
    if (const auto quota = quota_of_group(group); quota && (least == 0 || *quota < least)) least = *quota;
  }
  return least;
}

int CoreSet::usable() const {
  const int cores = std::max(1, static_cast<int>(allowed.size()));
  return quota > 0 ? std::clamp(static_cast<int>(quota + 1e-6), 1, cores) : cores;
}

CoreSet cores_of_process() {
  CoreSet cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  // Of the process, that is its main thread: others may be pinned.
  if (sched_getaffinity(getpid(), sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.allowed.push_back(core);
    }
  }
  cores.online = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  cores.quota = cpu_quota();
  return cores;
}

int available_cores() { return cores_of_process().usable(); }

std::vector<int> cores_to_pin(const CoreSet& cores, CoreShare share, int threads) {
  const auto allowed = static_cast<int>(cores.allowed.size());
  const bool is_bound = allowed != cores.online, is_limited = cores.usable() != allowed;
  if (is_bound || is_limited || threads < 2 || threads != share.size(allowed)) return {};
  return {cores.allowed.begin() + share.begin(allowed), cores.allowed.begin() + share.end(allowed)};
}

}  // namespace heddle
