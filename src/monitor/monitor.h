#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

namespace heddle {

/// Seconds of a step by part, as metrics.jsonl names them.
struct TimeByPart {
  double data = 0, forward = 0, backward = 0, optimizer = 0, communication = 0, offload = 0, checkpoint = 0;
};

/// What one optimizer step reports; a line of metrics.jsonl.
struct StepMetrics {
  std::int64_t step = 0;
  double epoch = 0, loss = 0, grad_norm = 0, learning_rate = 0;
  std::int64_t num_tokens = 0, num_supervised_tokens = 0;
  double tokens_per_second = 0, step_time = 0;
  bool skipped = false;
  std::optional<double> loss_scale;
  TimeByPart time;
};

struct EvalMetrics {
  std::int64_t step = 0;
  double loss = 0, perplexity = 0;
  std::int64_t num_tokens = 0;
};

/// Says what a run does, while it does it: progress on standard error (a bar on a terminal, lines otherwise),
/// metrics.jsonl, TensorBoard events, and at the end loss.svg and report.html. One object for a run, on rank 0.
class Monitor {
 public:
  struct Options {
    std::filesystem::path output_dir;
    std::int64_t first_step = 1, max_steps = 0;  ///< steps first_step..max_steps will be reported
    std::int64_t logging_steps = 1;
    std::uint64_t held_bytes = 0;  ///< memory that the run holds, for the progress line
    bool tensorboard = false;
    std::string title;  ///< e.g. "llama, 134,515,008 parameters, bf16"
  };
  /// Keeps the lines of an existing metrics.jsonl up to first_step - 1, byte for byte, and drops those after.
  explicit Monitor(Options options);
  ~Monitor();
  void on_step(const StepMetrics& metrics);
  void on_evaluation(const EvalMetrics& metrics);
  /// Writes loss.svg and report.html from metrics.jsonl, plan.json and memory.json in output_dir.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle
