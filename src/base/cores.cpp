#include "base/cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// A group's limit in cores: cpu.max of version 2, "QUOTA PERIOD" or "max PERIOD"; of version 1 two files, with -1 for
/// none.
std::optional<double> quota_of_group(const fs::path& folder) {
  std::string text;
  double quota = 0, period = 0;
  if (std::ifstream file(folder / "cpu.max"); file >> text >> period) {
    std::istringstream number(text);
    if (number >> quota && quota > 0 && period > 0) return quota / period;
    return std::nullopt;
  }
  std::ifstream quota_file(folder / "cpu.cfs_quota_us"), period_file(folder / "cpu.cfs_period_us");
  if (quota_file >> quota && period_file >> period && quota > 0 && period > 0) return quota / period;
  return std::nullopt;
}

bool has_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    const auto comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == "cpu") return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

}  // namespace

double cpu_quota(const fs::path& groups, const fs::path& root) {
  double least = 0;
  const auto take = [&](const fs::path& folder) {
    if (const auto quota = quota_of_group(folder); quota && (least == 0 || *quota < least)) least = *quota;
  };
  std::ifstream file(groups);
  for (std::string line; std::getline(file, line);) {  // ID:CONTROLLERS:PATH; version 2 names no controllers
    const auto first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && !has_cpu(controllers)) continue;
    std::vector<fs::path> mounts = {root, root / "unified"};
    if (!controllers.empty()) mounts = {root / controllers, root / "cpu"};
    fs::path group = fs::path(line.substr(second + 1)).relative_path();
    if (!group.empty() && *group.begin() == "..") group.clear();  // outside of the namespace
    for (const auto& mount : mounts) {
      for (fs::path at = group; !at.empty(); at = at.parent_path()) take(mount / at);
      take(mount);
    }
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
