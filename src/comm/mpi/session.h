#pragma once

// Headers of this folder are for this folder: nothing else sees mpi.h.
#include <mpi.h>

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/cores.h"
#include "base/error.h"
#include "comm/launcher.h"

namespace heddle {

/// MPI's own text for one of its codes.
std::string mpi_error_text(int code);

/// MPI between initialisation and finalisation; one for a process. Finalises when the last communicator is gone, unless
/// an exception is on its way, since the other ranks would not come.
class MpiSession {
 public:
  explicit MpiSession(const Launch& launch);
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
  ~MpiSession();

  /// Calls an MPI function, alone if this MPI wants that; throws Error with MPI's own text where it fails.
  template <typename Function>
  void call(const char* name, Function&& function) {
    const int code = locked(std::forward<Function>(function));
    if (code != MPI_SUCCESS) fail("{}: {}", name, mpi_error_text(code));
  }
  template <typename Function>
  int locked(Function&& function) {
    std::unique_lock lock(mutex_, std::defer_lock);
    if (!is_concurrent_) lock.lock();
    return function();
  }

 private:
  bool is_concurrent_ = false;
  std::mutex mutex_;
  int exceptions_at_start_ = 0;
};

/// The ranks of a group on this host, and this one's cores among theirs.
struct MpiHost {
  int ranks = 1, rank = 0, cores = 1;
  CoreShare share;          ///< of the cores that this rank may use, which others may use too
  bool is_crowded = false;  ///< fewer cores than ranks
};
MpiHost find_mpi_host(MpiSession& session, MPI_Comm comm);

}  // namespace heddle
