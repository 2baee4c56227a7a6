#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

/// The processes below one: what Linux tells of them in /proc.
namespace heddle::cli {

struct TreeProcess {
  pid_t id = 0;
  std::string name;  ///< of its program, at most 15 characters
};

/// All processes below `root` that still run.
std::vector<TreeProcess> processes_below(pid_t root);

/// Sends a signal to all of them.
void signal_processes_below(pid_t root, int signal);

/// Sends it to those that run the same program as this process, which are the ranks; to all where there are none (on
/// other hosts, or of another program). What stands between shall not have it: mpirun would kill its ranks a second
/// later, in the middle of a save, and a program that passes it on would make it the second one, which ends them.
void signal_ranks_below(pid_t root, int signal);

/// Waits until none is left, and kills those that are after `seconds`. `root` adopts orphans.
void end_processes_below(pid_t root, double seconds);

}  // namespace heddle::cli
