#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace heddle {

/// When a run has to stop by itself: after `max_minutes`, or before the Slurm job that it is part of ends
/// (SLURM_JOB_END_TIME, seconds since 1970), which kills whatever still runs.
class TimeLimit {
 public:
  /// `max_minutes` from now on; 0: no such limit. Throws Error for an end of the job that is no number.
  explicit TimeLimit(double max_minutes);

  /// Whether the run has to stop after the step that just ended. `needed` is what one more step and a save may take: a
  /// job's end must lie further away than that and a minute's margin.
  bool is_reached(std::chrono::duration<double> needed) const;

  /// Which limit that is, for people.
  std::string_view name() const;

 private:
  using Clock = std::chrono::steady_clock;
  bool job_ends_within(std::chrono::duration<double> time) const;

  std::optional<Clock::time_point> end_;
  std::optional<std::chrono::system_clock::time_point> job_end_;
};

}  // namespace heddle
