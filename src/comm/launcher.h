#pragma once

#include <functional>
#include <optional>
#include <string>

#include "comm/job.h"

namespace heddle {

/// How a launcher started this process: its number and the number of processes, from environment variables.
struct Launch {
  int rank = 0;
  int size = 0;          ///< 0 where the launcher does not say
  std::string launcher;  ///< the variable that says so, for messages
};

/// Reads the variables of Open MPI's mpirun, of PMI and PMIx (MPICH, Intel MPI, Slurm, Cray), and of MVAPICH. Throws
/// Error where srun started several processes with neither PMI nor PMIx: they would not know of each other.
std::optional<Launch> find_launch();

// MPI's side of a job, which is in mpi/ or, in a build without MPI, in mpi_absent.cpp.

/// Joins the job of this launch, runs body and leaves in order. Does not return where body throws.
int run_mpi(const Launch& launch, const std::function<int(Communicator&)>& body, const JobOptions& options);
/// Ends all processes of the job that this process has joined; returns where it has joined none.
void abort_mpi();

}  // namespace heddle
