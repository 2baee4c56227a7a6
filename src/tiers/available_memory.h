#pragma once

#include <cstddef>
#include <filesystem>

namespace heddle {

/// Bytes that this process can still take: the system's available memory, cut by the limits of its cgroups, RLIMIT_AS
/// and RLIMIT_DATA.
std::size_t available_memory();

/// Of these, what cgroups leave (version 1 or 2, those above a process's own too); the greatest number where nothing
/// limits it. `membership` lists the process's cgroups, as /proc/self/cgroup; `root` holds them.
std::size_t available_in_cgroups(const std::filesystem::path& membership, const std::filesystem::path& root);

}  // namespace heddle
