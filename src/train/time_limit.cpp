#include "train/time_limit.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"

namespace heddle {
namespace {

constexpr const char* kJobEnd = "SLURM_JOB_END_TIME";
constexpr std::chrono::minutes kMargin{1};

std::optional<std::chrono::system_clock::time_point> end_of_job() {
  const char* variable = std::getenv(kJobEnd);
  if (variable == nullptr) return std::nullopt;
  const std::string_view text(variable);
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || seconds < 0)
    fail("environment variable {} is '{}', expected seconds since 1970", kJobEnd, text);
  return std::chrono::system_clock::time_point(std::chrono::seconds(seconds));
}

}  // namespace

TimeLimit::TimeLimit(double max_minutes) : job_end_(end_of_job()) {
  const std::chrono::duration<double, std::ratio<60>> length(max_minutes);
  if (max_minutes > 0) end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(length);
}

bool TimeLimit::job_ends_within(std::chrono::duration<double> time) const {
  return job_end_ && *job_end_ - std::chrono::system_clock::now() <= time;
}

bool TimeLimit::is_reached(std::chrono::duration<double> needed) const {
  return (end_ && Clock::now() >= *end_) || job_ends_within(needed + kMargin);
}

std::string_view TimeLimit::name() const {
  return end_ && Clock::now() >= *end_ ? "max_minutes" : "the end of the Slurm job";
}

}  // namespace heddle
