#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "monitor/metrics.h"

namespace heddle {

/// Progress of a run on a file descriptor: one line redrawn in place on a terminal, a plain line every `logging_steps`
/// steps otherwise. Skipped steps and evaluations always get a line of their own.
class Progress {
 public:
  struct Options {
    int descriptor = 2;
    bool is_terminal = false;
    std::int64_t first_step = 1, max_steps = 0;
    std::int64_t logging_steps = 1;
    std::uint64_t held_bytes = 0;
  };
  explicit Progress(Options options);
  ~Progress();  ///< shows the last step, if it was not, and leaves the bar's line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void on_step(const StepMetrics& metrics);
  void on_evaluation(const EvalMetrics& metrics);

 private:
  using Clock = std::chrono::steady_clock;
  void show(const StepMetrics& metrics);
  void print_line(std::string_view line);
  void draw_bar(const StepMetrics& metrics);
  std::string seconds_left(std::int64_t step) const;
  std::string figures(const StepMetrics& metrics) const;

  Options options_;
  Clock::time_point began_, drawn_;
  bool bar_is_drawn_ = false;
  std::optional<StepMetrics> unshown_;  // the newest step, while it is not on the screen
};

/// "7s", "2m05s", "3h07m", "4d02h".
std::string format_duration(double seconds);

/// One line of at most `columns` columns: the steps done as a bar, as wide as the figures leave room for.
std::string progress_bar(std::int64_t step, std::int64_t max_steps, std::string_view figures, int columns);

}  // namespace heddle
