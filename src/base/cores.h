#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace heddle {

/// Cores this process may use: the affinity mask, cut by a container's CPU quota.
int available_cores();

/// Processor time that the control groups of this process allow, in cores: the least of its own group and of all above
/// it, version 1 or 2; 0 where none sets a limit. `groups` is /proc/self/cgroup, `root` where the hierarchies are
/// mounted; a container without a namespace of its own sees its group as the root.
double cpu_quota(const std::filesystem::path& groups = "/proc/self/cgroup",
                 const std::filesystem::path& root = "/sys/fs/cgroup");

/// Part `index` of `count` of the cores: several ranks on a host divide them, as evenly as they go.
struct CoreShare {
  int index = 0, count = 1;
  /// Of that many cores, which of them are in the share: from begin() to before end().
  int begin(int cores) const { return static_cast<int>(std::int64_t{cores} * index / count); }
  int end(int cores) const { return static_cast<int>(std::int64_t{cores} * (index + 1) / count); }
  int size(int cores) const { return end(cores) - begin(cores); }
};

/// The machine's cores, those that the process is allowed, and its quota in cores (0: none).
struct CoreSet {
  int online = 1;
  std::vector<int> allowed;
  double quota = 0;
  int usable() const;
};
CoreSet cores_of_process();

/// The core of each of a team's threads; empty where the system places threads better. They are pinned where they take
/// the whole share of an unbound process without a quota: a user or a launcher that bound the process decided already,
/// and of two teams that need less than the machine each would take the same cores.
std::vector<int> cores_to_pin(const CoreSet& cores, CoreShare share, int threads);

}  // namespace heddle
