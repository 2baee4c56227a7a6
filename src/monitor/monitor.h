#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "monitor/metrics.h"

namespace heddle {

/// Says what a run does, while it does it: progress on standard error (a bar on a terminal, lines otherwise),
/// metrics.jsonl, TensorBoard events, and at the end loss.svg and report.html. One object for a run, on rank 0.
class Monitor {
 public:
  struct Options {
    std::filesystem::path output_dir;
    std::int64_t first_step = 1, max_steps = 0;  ///< steps first_step..max_steps will be reported
    std::int64_t logging_steps = 1;              ///< a progress line every so many steps; metrics.jsonl has every step
    std::uint64_t held_bytes = 0;                ///< memory that the run holds, for the progress line
    bool tensorboard = false;
    std::string title;  ///< e.g. "llama, 134,515,008 parameters, bf16"
  };
  /// Keeps the lines of an existing metrics.jsonl up to first_step - 1, byte for byte, and drops those after.
  explicit Monitor(Options options);
  ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;
  void on_step(const StepMetrics& metrics);
  void on_evaluation(const EvalMetrics& metrics);
  /// Writes loss.svg and report.html from metrics.jsonl, plan.json and memory.json in output_dir. The two JSON files
  /// may be absent; the report then has no memory section.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle
