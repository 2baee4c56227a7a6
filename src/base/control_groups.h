#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

namespace heddle {

struct ControlGroup {
  std::filesystem::path folder;
  int version;  // 1 or 2: how the files in it are called
};

/// The control groups that bind this process: its own and all above it, of version 2 and of version 1's `controller`.
/// `membership` is in the form of /proc/self/cgroup, `root` where the hierarchies are mounted. Folders may be absent: a
/// container without a namespace of its own sees its group as the root.
std::vector<ControlGroup> control_groups(std::string_view controller,
                                         const std::filesystem::path& membership = "/proc/self/cgroup",
                                         const std::filesystem::path& root = "/sys/fs/cgroup");

}  // namespace heddle
