#include "base/control_groups.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace heddle {
namespace {

namespace fs = std::filesystem;

/// Whether a list as "cpu,cpuacct" has the name.
bool has_name(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const auto comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == name) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

}  // namespace

std::vector<ControlGroup> control_groups(std::string_view controller, const fs::path& membership,
                                         const fs::path& root) {
  std::vector<ControlGroup> groups;
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {  // ID:CONTROLLERS:PATH; version 2 names no controllers
    const auto first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && !has_name(controllers, controller)) continue;
    const int version = controllers.empty() ? 2 : 1;
    const auto mounts = version == 2 ? std::vector{root, root / "unified"}
                                     : std::vector{root / controllers, root / fs::path(controller)};
    fs::path group = fs::path(line.substr(second + 1)).relative_path();
    if (!group.empty() && *group.begin() == "..") group.clear();  // outside of the namespace
    for (const auto& mount : mounts) {
      for (fs::path at = group; !at.empty(); at = at.parent_path()) groups.push_back({mount / at, version});
      groups.push_back({mount, version});
    }
  }
  return groups;
}

}  // namespace heddle
