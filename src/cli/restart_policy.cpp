#include "cli/restart_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>

namespace heddle::cli {
namespace {

constexpr int kWrongUsage = 2, kSignalled = 128;

bool is_stop(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP; }

std::string how_it_ended(const JobEnding& ending) {
  std::string text = ending.signal != 0
                         ? fmt::format("was ended by signal {} ({})", ending.signal, ::strsignal(ending.signal))
                         : fmt::format("ended with exit code {}", ending.exit_code);
  text += fmt::format(" after {:.0f} s", ending.seconds);
  if (!ending.last_line.empty()) text += fmt::format("; its last line: {}", ending.last_line);
  return text;
}

}  // namespace

RestartPolicy::Decision RestartPolicy::after(const JobEnding& ending, std::int64_t newest_step, bool can_change) {
  const int code = ending.signal != 0 ? kSignalled + ending.signal : ending.exit_code;
  if (code == 0) return {};
  if (is_stop(code - kSignalled)) return {false, 0, code, ""};
  if (ending.passed_signal != 0) {
    return {false, 0, kSignalled + ending.passed_signal,
            fmt::format("the job was asked to stop, and {}: it may not have saved", how_it_ended(ending))};
  }
  if (code == kWrongUsage) return {false, 0, code, fmt::format("wrong usage: the job {}", how_it_ended(ending))};

  const bool moved = newest_step > newest_step_;
  newest_step_ = std::max(newest_step, newest_step_);
  if (moved) in_a_row_ = 0;
  const bool failed_at_once = !moved && code == 1 && ending.seconds < options_.min_uptime;
  const bool is_same = failed_at_once && in_a_row_ > 0 && last_failure_ == ending.last_line && !last_failure_.empty();
  last_failure_ = failed_at_once ? ending.last_line : "";
  if (is_same && !can_change)
    return {false, 0, 1, fmt::format("the job {}, as the time before: it is not started again", how_it_ended(ending))};
  if (in_a_row_ == options_.max_restarts) {
    return {false, 0, 1,
            fmt::format("the job {}; it was restarted {} times without a newer checkpoint", how_it_ended(ending),
                        in_a_row_)};
  }
  const double delay = std::min(options_.most_delay, std::ldexp(options_.delay, std::min(in_a_row_, 30)));
  ++in_a_row_;
  ++restarts_;
  std::string from = newest_step_ >= 0 ? fmt::format(" from checkpoint-{}", newest_step_) : "";
  return {true, delay, 0,
          fmt::format("the job {}; restart {} of {}{} in {:.3g} s", how_it_ended(ending), in_a_row_,
                      options_.max_restarts, from, delay)};
}

}  // namespace heddle::cli
