#include "base/threads.h"

#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace heddle {
namespace {

thread_local int chosen_threads = 0;

/// Cores allowed by the cgroup's quota (version 2, then 1), or 0 where there is none.
int quota_cores() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (file >> quota >> period && quota != "max" && period > 0) {
    return std::max(1, static_cast<int>(std::stod(quota) / period));
  }
  std::ifstream old_quota("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), old_period("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  double microseconds = 0;
  if (old_quota >> microseconds && old_period >> period && microseconds > 0 && period > 0) {
    return std::max(1, static_cast<int>(microseconds / period));
  }
  return 0;
}

}  // namespace

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
  if (const int quota = quota_cores(); quota > 0) cores = std::min(cores, quota);
  return std::max(1, cores);
}

void set_threads(int threads) { chosen_threads = std::max(1, threads); }

int threads() {
  if (chosen_threads == 0) chosen_threads = available_cores();
  return chosen_threads;
}

namespace detail {

void run_parallel(std::int64_t count, Body body, void* context) {
  const int team = omp_in_parallel() ? 1 : static_cast<int>(std::min<std::int64_t>(threads(), count));
  if (team <= 1) {
    for (std::int64_t index = 0; index < count; ++index) body(context, index, 0);
    return;
  }
#pragma omp parallel for schedule(dynamic, 1) num_threads(team)
  for (std::int64_t index = 0; index < count; ++index) body(context, index, omp_get_thread_num());
}

}  // namespace detail
}  // namespace heddle
