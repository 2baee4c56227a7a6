#pragma once

#include <cstdint>
#include <string>

#include "cli/supervised_job.h"

namespace heddle::cli {

/// Whether a job that ended is started again, and when.
class RestartPolicy {
 public:
  struct Options {
    int max_restarts = 10;   ///< in a row, without a newer checkpoint
    double min_uptime = 10;  ///< seconds; a job that ends sooner failed at once
    double delay = 1;        ///< seconds before the first restart; doubled for each further one
    double most_delay = 60;  ///< seconds
  };
  struct Decision {
    bool restarts = false;
    double delay = 0;   ///< seconds to wait before
    int exit_code = 0;  ///< where it does not restart
    std::string text;   ///< why; empty where the job did what it was to do
  };

  /// `newest_step`: that of the newest checkpoint, or -1, now.
  RestartPolicy(const Options& options, std::int64_t newest_step) : options_(options), newest_step_(newest_step) {}

  /// `can_change`: the job may start otherwise the next time, so that a failure like the one before says little.
  Decision after(const JobEnding& ending, std::int64_t newest_step, bool can_change = false);
  /// How often it was restarted, in all.
  int restarts() const { return restarts_; }

 private:
  Options options_;
  std::int64_t newest_step_;
  int restarts_ = 0, in_a_row_ = 0;
  std::string last_failure_;  // of a job that failed at once with exit code 1; else empty
};

}  // namespace heddle::cli
