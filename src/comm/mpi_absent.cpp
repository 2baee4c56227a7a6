// In place of mpi/ in a build that found no MPI.
#include "base/error.h"
#include "comm/launcher.h"

namespace heddle {

std::size_t mpi_staging_bytes(int) { return 0; }

int run_mpi(const Launch& launch, const std::function<int(Communicator&)>&, const JobOptions&) {
  fail(
      "a launcher started this process ({}), but heddle was built without MPI; install libopenmpi-dev or libmpich-dev "
      "and build again, or use threads: --ranks N",
      launch.launcher);
}

void abort_mpi() {}

}  // namespace heddle
