#include "monitor/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "formats/open_file.h"

namespace heddle {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);

int columns_of(int descriptor) {
  winsize size{};
  return ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

std::string format_duration(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  const auto minutes = whole / 60, hours = minutes / 60, days = hours / 24;
  if (days > 0) return fmt::format("{}d{:02}h", days, hours % 24);
  if (hours > 0) return fmt::format("{}h{:02}m", hours, minutes % 60);
  if (minutes > 0) return fmt::format("{}m{:02}s", minutes, whole % 60);
  return fmt::format("{}s", whole);
}

std::string progress_bar(std::int64_t step, std::int64_t max_steps, std::string_view figures, int columns) {
  constexpr int kWidest = 30, kNarrowest = 6;
  const std::string counts = fmt::format("{}/{} ", step, max_steps);
  const int room = columns - static_cast<int>(counts.size()) - static_cast<int>(figures.size()) - 2;
  std::string bar;
  if (room >= kNarrowest) {
    const int width = std::min(room, kWidest);
    const double done = max_steps > 0 ? static_cast<double>(step) / static_cast<double>(max_steps) : 0.0;
    const int filled = std::clamp(static_cast<int>(done * width), 0, width);
    for (int i = 0; i < width; ++i) bar += i < filled ? "━" : "─";
    bar += "  ";
  }
  std::string line = counts + bar + std::string(figures);
  const auto limit = static_cast<std::size_t>(std::max(columns, 1));
  if (bar.empty() && line.size() > limit) line.resize(limit);  // all ASCII without the bar
  return line;
}

Progress::Progress(Options options) : options_(options), began_(Clock::now()), drawn_(began_ - kRedrawInterval) {}

Progress::~Progress() {
  if (unshown_) show(*unshown_);
  if (bar_is_drawn_) write_fully(options_.descriptor, "\n");
}

std::string Progress::seconds_left(std::int64_t step) const {
  const double elapsed = std::chrono::duration<double>(Clock::now() - began_).count();
  const auto done = static_cast<double>(step - options_.first_step + 1);
  return format_duration(elapsed / done * static_cast<double>(options_.max_steps - step));
}

std::string Progress::figures(const StepMetrics& metrics) const {
  std::string text = fmt::format(
      "loss {:.4f}  lr {:.3g}  norm {:.3g}  {} tok/s", metrics.loss, metrics.learning_rate, metrics.grad_norm,
      format_count(static_cast<std::uint64_t>(std::max(0.0, std::round(metrics.tokens_per_second)))));
  if (options_.held_bytes > 0) text += "  " + format_bytes(options_.held_bytes);
  if (metrics.step < options_.max_steps) text += fmt::format("  {} left", seconds_left(metrics.step));
  return text;
}

// The cursor waits at the start of the bar's line, so that a message of anyone else overwrites the bar.
void Progress::print_line(std::string_view line) {
  write_fully(options_.descriptor, fmt::format("{}{}\n", bar_is_drawn_ ? "\x1b[K" : "", line));
  bar_is_drawn_ = false;
}

void Progress::draw_bar(const StepMetrics& metrics) {
  const auto bar =
      progress_bar(metrics.step, options_.max_steps, figures(metrics), columns_of(options_.descriptor) - 1);
  write_fully(options_.descriptor, fmt::format("{}\x1b[K\r", bar));
  bar_is_drawn_ = true;
}

void Progress::show(const StepMetrics& metrics) {
  if (options_.is_terminal) {
    draw_bar(metrics);
  } else {
    print_line(fmt::format("step {}/{}  {}", metrics.step, options_.max_steps, figures(metrics)));
  }
  unshown_.reset();
}

void Progress::on_step(const StepMetrics& metrics) {
  if (metrics.skipped) {
    const char* what = std::isfinite(metrics.loss) ? "gradient" : "loss";
    const auto scale = metrics.loss_scale ? fmt::format(" (loss scale {})", *metrics.loss_scale) : std::string();
    print_line(
        fmt::format("step {}/{}  skipped: its {} is not finite{}", metrics.step, options_.max_steps, what, scale));
    unshown_.reset();
    return;
  }
  unshown_ = metrics;
  bool is_due = metrics.step % std::max<std::int64_t>(1, options_.logging_steps) == 0;
  if (options_.is_terminal) {
    const auto now = Clock::now();
    is_due = now - drawn_ >= kRedrawInterval;
    if (is_due) drawn_ = now;
  }
  if (is_due || metrics.step == options_.max_steps) show(metrics);
}

void Progress::on_evaluation(const EvalMetrics& metrics) {
  std::string quality;
  if (metrics.perplexity) quality = fmt::format("  eval_perplexity {:.4g}", *metrics.perplexity);
  if (metrics.preference) quality = fmt::format("  eval_rewards/accuracies {:.3f}", metrics.preference->accuracy);
  print_line(fmt::format("step {}/{}  eval_loss {:.4f}{}  {} tokens", metrics.step, options_.max_steps, metrics.loss,
                         quality,
                         format_count(static_cast<std::uint64_t>(std::max<std::int64_t>(0, metrics.num_tokens)))));
}

}  // namespace heddle
