#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace heddle::cli {

/// How a job ended.
struct JobEnding {
  int exit_code = 0;      ///< of the command's process, unless `signal`
  int signal = 0;         ///< that ended it
  int passed_signal = 0;  ///< SIGINT, SIGTERM or SIGHUP that came meanwhile and was passed on to it
  std::string last_line;  ///< of its standard error: the last that begins with "heddle: error:", else the last
  double seconds = 0;     ///< that it ran
};

/// SIGINT, SIGTERM and SIGHUP (unless it is ignored) wait from here on, for the next run() or pause(), as does SIGUSR1,
/// which run() passes on to the ranks; all that a job leaves behind becomes a child of this process. One for a process.
class Supervisor {
 public:
  /// `grace`: seconds that processes are given to end when they are asked to.
  explicit Supervisor(double grace);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Runs a command to its end, with HEDDLE_RESTART_COUNT in its environment. Its standard error is passed through.
  /// A first signal to stop is passed on to the ranks (signal_ranks_below), further ones to all, and all of them have
  /// ended when it returns. Throws Error where the command cannot be started.
  JobEnding run(const std::vector<std::string>& command, int restarts);
  /// Waits; gives the number of the signal that ended the wait early, or 0.
  int pause(double seconds) const;

 private:
  double grace_;
  int signals_ = -1;  // signalfd
};

}  // namespace heddle::cli
