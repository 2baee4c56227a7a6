#include "comm/mpi/session.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <exception>
#include <vector>

#include "base/cores.h"

namespace heddle {

std::string mpi_error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

MpiSession::MpiSession(const Launch& launch) : exceptions_at_start_(std::uncaught_exceptions()) {
  int provided = MPI_THREAD_SINGLE;
  const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
  if (code != MPI_SUCCESS) fail("MPI_Init_thread: {}", mpi_error_text(code));
  if (provided < MPI_THREAD_SERIALIZED) {
    fail("this MPI allows calls from one thread only; expected MPI_THREAD_SERIALIZED or more");
  }
  is_concurrent_ = provided == MPI_THREAD_MULTIPLE;
  int size = 0;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  call("MPI_Comm_size", [&] { return MPI_Comm_size(MPI_COMM_WORLD, &size); });
  if (launch.size > 0 && size != launch.size) {
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
    int length = 0;
    MPI_Get_library_version(version.data(), &length);
    const std::string name(version.data(), static_cast<std::size_t>(length));
    fail("the launcher started {} processes ({}), but MPI finds {}; heddle was built with {}: use its own mpirun",
         launch.size, launch.launcher, size, name.substr(0, name.find_first_of(",\n")));
  }
}

MpiSession::~MpiSession() {
  if (std::uncaught_exceptions() <= exceptions_at_start_) MPI_Finalize();
}

MpiHost find_mpi_host(MpiSession& session, MPI_Comm comm) {
  MPI_Comm host = MPI_COMM_NULL;
  session.call("MPI_Comm_split_type",
               [&] { return MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host); });
  MpiHost found;
  session.call("MPI_Comm_size", [&] { return MPI_Comm_size(host, &found.ranks); });
  session.call("MPI_Comm_rank", [&] { return MPI_Comm_rank(host, &found.rank); });

  // A core that k ranks may use counts 1/k for each of them, whether the launcher bound ranks or not.
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof(mine), &mine);
  std::vector<cpu_set_t> all(static_cast<std::size_t>(found.ranks));
  session.call("MPI_Allgather",
               [&] { return MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, host); });
  double share = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &mine)) continue;
    share += 1.0 / static_cast<double>(
                       std::count_if(all.begin(), all.end(), [&](const auto& set) { return CPU_ISSET(core, &set); }));
  }
  const auto may_use_mine = [&](const cpu_set_t& set) { return CPU_EQUAL(&set, &mine) != 0; };
  found.share = {static_cast<int>(std::count_if(all.begin(), all.begin() + found.rank, may_use_mine)),
                 static_cast<int>(std::count_if(all.begin(), all.end(), may_use_mine))};
  // available_cores() knows a container's quota too, which ranks of one container share.
  const double quota = available_cores() < CPU_COUNT(&mine) ? 1.0 * available_cores() / found.ranks : share;
  const double cores = std::min(share, quota) + 1e-6;
  found.cores = std::max(1, static_cast<int>(cores));
  found.is_crowded = cores < 1;
  session.call("MPI_Comm_free", [&] { return MPI_Comm_free(&host); });
  return found;
}

void abort_mpi() {
  int is_initialized = 0, is_finalized = 0;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  if (is_initialized != 0 && is_finalized == 0) MPI_Abort(MPI_COMM_WORLD, 1);
}

}  // namespace heddle
