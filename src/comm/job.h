#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "comm/communicator.h"

namespace heddle {

/// The group of one.
std::unique_ptr<Communicator> alone();

/// Bytes that each communicator of `ranks` processes over MPI holds for messages on their way (staging_bytes()), so
/// that a plan can count them before there is a communicator.
std::size_t mpi_staging_bytes(int ranks);

/// Whether mpirun, srun or another launcher started this process as one of several (or of one).
bool is_launched();
/// The launcher's number of this process, before MPI is initialised (for early messages); 0 where there is none.
int launched_rank();
int launched_size();

/// How patient a job is.
struct JobOptions {
  /// How long a call may wait for other ranks (Communicator::set_time_limit).
  std::chrono::milliseconds time_limit = std::chrono::minutes(10);
  /// How long threads may go on after another rank failed, before the process is ended under them.
  std::chrono::milliseconds grace = std::chrono::seconds(20);
};

/// Runs body on `ranks` threads, one rank each, and joins them. When a body throws, calls of the other ranks throw too;
/// what comes out of here is the first failure itself, with "rank R: " before its text where ranks > 1 (the type of
/// UsageError is kept). Returns the greatest exit code.
int run_ranks(int ranks, const std::function<int(Communicator&)>& body, const JobOptions& options = {});

/// Runs body as this process's part of the job: over MPI where a launcher started it, else on `ranks` threads, else
/// alone. Under a launcher `ranks` must be its number of processes, or 0: whatever that is. A failure on one rank of
/// an MPI job ends all its processes with exit code 1 after its message is printed; it does not return then.
int run_job(int ranks, const std::function<int(Communicator&)>& body, const JobOptions& options = {});

/// Prints `heddle: error: MESSAGE` and ends all processes of this job at once, with exit code 1. For failures after
/// which other ranks would wait for ever.
[[noreturn]] void abort_job(std::string_view message);

}  // namespace heddle
