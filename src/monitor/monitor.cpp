#include "monitor/monitor.h"

#include <unistd.h>

#include <optional>
#include <utility>
#include <vector>

#include "formats/files.h"
#include "monitor/event_file.h"
#include "monitor/progress.h"
#include "monitor/report.h"

namespace heddle {
namespace {

constexpr int kStandardError = 2;

std::filesystem::path made(const std::filesystem::path& folder) {
  make_folder(folder);
  return folder;
}

void add_preference(const std::optional<PreferenceMetrics>& metrics, const std::string& prefix,
                    std::vector<Scalar>& scalars) {
  if (!metrics) return;
  for (const auto& part : kPreferenceParts)
    scalars.push_back({prefix + std::string(part.name), (*metrics).*part.value});
}

}  // namespace

struct Monitor::Impl {
  explicit Impl(Options chosen)
      : options(std::move(chosen)),
        metrics(made(options.output_dir) / "metrics.jsonl", options.first_step),
        progress({.descriptor = kStandardError,
                  .is_terminal = ::isatty(kStandardError) == 1,
                  .first_step = options.first_step,
                  .max_steps = options.max_steps,
                  .logging_steps = options.logging_steps,
                  .held_bytes = options.held_bytes}) {
    if (options.tensorboard) events.emplace(options.output_dir / "runs", options.first_step);
  }

  Options options;
  MetricsFile metrics;
  std::optional<EventFile> events;
  Progress progress;
};

Monitor::Monitor(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Monitor::~Monitor() = default;

void Monitor::on_step(const StepMetrics& metrics) {
  impl_->metrics.append(metrics);
  if (impl_->events) {
    std::vector<Scalar> scalars = {{"train/loss", metrics.loss},
                                   {"train/learning_rate", metrics.learning_rate},
                                   {"train/grad_norm", metrics.grad_norm},
                                   {"train/epoch", metrics.epoch},
                                   {"train/tokens_per_second", metrics.tokens_per_second}};
    if (metrics.loss_scale) scalars.push_back({"train/loss_scale", *metrics.loss_scale});
    add_preference(metrics.preference, "train/", scalars);
    impl_->events->append(metrics.step, scalars);
  }
  impl_->progress.on_step(metrics);
}

void Monitor::on_evaluation(const EvalMetrics& metrics) {
  impl_->metrics.append(metrics);
  if (impl_->events) {
    std::vector<Scalar> scalars = {{"eval/loss", metrics.loss}};
    if (metrics.perplexity) scalars.push_back({"eval/perplexity", *metrics.perplexity});
    add_preference(metrics.preference, "eval/", scalars);
    impl_->events->append(metrics.step, scalars);
  }
  impl_->progress.on_evaluation(metrics);
}

void Monitor::finish() { write_report(impl_->options.output_dir, impl_->options.title); }

}  // namespace heddle
