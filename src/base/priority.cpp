#include "base/priority.h"

#include <sys/resource.h>

namespace heddle {

void lower_priority() {
  constexpr int kSteps = 5;  // of `nice`, each a factor of 1.25: a third of the other's share
  // Of a thread on Linux, where POSIX has it of the process. Where it fails, nothing is lost but speed.
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + kSteps);
}

}  // namespace heddle
