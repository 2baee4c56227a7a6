#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/append_file.h"

namespace heddle {

/// Seconds of a step by part, as metrics.jsonl names them.
struct TimeByPart {
  double data = 0, forward = 0, backward = 0, optimizer = 0, communication = 0, offload = 0, checkpoint = 0;
};

/// One part of TimeByPart with its name, in the order of metrics.jsonl.
struct TimePart {
  std::string_view name;
  double TimeByPart::*seconds;
};
inline constexpr TimePart kTimeParts[] = {
    {"data", &TimeByPart::data},
    {"forward", &TimeByPart::forward},
    {"backward", &TimeByPart::backward},
    {"optimizer", &TimeByPart::optimizer},
    {"communication", &TimeByPart::communication},
    {"offload", &TimeByPart::offload},
    {"checkpoint", &TimeByPart::checkpoint},
};

/// Means over preference pairs: rewards, the part of pairs whose chosen reward is the greater, their difference, and
/// the log-probabilities of the answers.
struct PreferenceMetrics {
  double chosen_reward = 0, rejected_reward = 0, accuracy = 0, margin = 0, chosen_log_prob = 0, rejected_log_prob = 0;
};
/// One of them with its name, TRL's, in the order of metrics.jsonl; of an evaluation with eval_ before it.
struct PreferencePart {
  std::string_view name;
  double PreferenceMetrics::*value;
};
inline constexpr PreferencePart kPreferenceParts[] = {
    {"rewards/chosen", &PreferenceMetrics::chosen_reward}, {"rewards/rejected", &PreferenceMetrics::rejected_reward},
    {"rewards/accuracies", &PreferenceMetrics::accuracy},  {"rewards/margins", &PreferenceMetrics::margin},
    {"logps/chosen", &PreferenceMetrics::chosen_log_prob}, {"logps/rejected", &PreferenceMetrics::rejected_log_prob},
};

/// What one optimizer step reports; a line of metrics.jsonl.
struct StepMetrics {
  std::int64_t step = 0;
  double epoch = 0, loss = 0, grad_norm = 0, learning_rate = 0;
  std::int64_t num_tokens = 0, num_supervised_tokens = 0;
  double tokens_per_second = 0, step_time = 0;
  bool skipped = false;
  std::optional<double> loss_scale;
  std::optional<PreferenceMetrics> preference;
  TimeByPart time;
};

struct EvalMetrics {
  std::int64_t step = 0;
  double loss = 0;
  std::optional<double> perplexity;  ///< none of preference pairs
  std::int64_t num_tokens = 0;
  std::optional<PreferenceMetrics> preference = {};
};

/// A line of metrics.jsonl with its newline. Numbers have the fewest digits that read back to the same bits; what is
/// not finite is null, and a step whose loss or gradient norm is not finite counts as skipped.
std::string metrics_line(const StepMetrics& metrics);
std::string metrics_line(const EvalMetrics& metrics);

/// All that a metrics.jsonl holds. A null comes back as NaN; a last line cut short by a kill is left out.
struct MetricsHistory {
  std::vector<StepMetrics> steps;
  std::vector<EvalMetrics> evaluations;
};
MetricsHistory read_metrics(const std::filesystem::path& path);

/// metrics.jsonl, open for appending. Each line is one write(), so a kill leaves whole lines or one that is cut.
class MetricsFile {
 public:
  /// Keeps the lines up to step first_step - 1 byte for byte; drops later ones and a last one that is cut.
  MetricsFile(const std::filesystem::path& path, std::int64_t first_step);
  void append(const StepMetrics& metrics) { file_.append(metrics_line(metrics)); }
  void append(const EvalMetrics& metrics) { file_.append(metrics_line(metrics)); }

 private:
  AppendFile file_;
};

}  // namespace heddle
