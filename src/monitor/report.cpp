#include "monitor/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "formats/files.h"
#include "monitor/memory_bill.h"
#include "monitor/progress.h"

namespace heddle {
namespace {

constexpr std::string_view kPageStyle = R"(
:root{color-scheme:light dark;--page:#f6f7f9;--card:#ffffff;--ink:#111827;--soft:#6b7280;--edge:#e5e7eb;--good:#15803d;--bad:#b91c1c}
@media (prefers-color-scheme:dark){:root{--page:#090c10;--card:#0f1419;--ink:#f3f4f6;--soft:#9ca3af;--edge:#262d36;--good:#4ade80;--bad:#f87171}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:14px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","DejaVu Sans",Arial,sans-serif}
main{max-width:980px;margin:0 auto;padding:32px 20px 48px}
h1{font-size:24px;line-height:1.25;margin:0 0 4px}
h2{font-size:17px;margin:36px 0 12px}
p{margin:0 0 12px;color:var(--soft)}
.card{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:8px;margin:0 0 16px;overflow-x:auto}
.card svg{display:block;width:100%;height:auto}
.figures{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:12px;margin:20px 0 24px}
.figure{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:12px 14px}
.figure b{display:block;font-size:20px;line-height:1.3;font-weight:600;font-variant-numeric:tabular-nums}
.figure span{color:var(--soft);font-size:12px}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:7px 12px;text-align:right;border-bottom:1px solid var(--edge);white-space:nowrap}
th:first-child,td:first-child{text-align:left}
th{color:var(--soft);font-weight:500}
tr:last-child td{border-bottom:0}
tr.sum td{font-weight:600}
.good{color:var(--good)}.bad{color:var(--bad)}
footer{color:var(--soft);font-size:12px;margin-top:32px}
)";

std::vector<double> column(const MetricsHistory& history, double StepMetrics::*member) {
  std::vector<double> values;
  values.reserve(history.steps.size());
  for (const auto& step : history.steps) values.push_back(step.*member);
  return values;
}

std::vector<double> step_numbers(const MetricsHistory& history) {
  std::vector<double> steps;
  steps.reserve(history.steps.size());
  for (const auto& step : history.steps) steps.push_back(static_cast<double>(step.step));
  return steps;
}

int trend_window(const MetricsHistory& history) { return std::max(1, static_cast<int>(history.steps.size()) / 40); }

/// A figure by step: its values faintly and their trend, or one line where there are too few steps for a trend.
void add_curve(LineChart& chart, const MetricsHistory& history, std::vector<double> values, int colour,
               const std::string& label) {
  const auto steps = step_numbers(history);
  const int window = trend_window(history);
  if (window < 2) {
    chart.series.push_back({label, Mark::line, colour, steps, std::move(values)});
    return;
  }
  auto trend = smoothed(values, window);
  chart.series.push_back(
      {label.empty() ? "" : label + ", each step", Mark::faint_line, colour, steps, std::move(values)});
  chart.series.push_back({label.empty() ? "" : label + ", trend", Mark::line, colour, steps, std::move(trend)});
}

/// A small chart of one figure. One that is set and not measured has no trend.
LineChart small_chart(const MetricsHistory& history, const std::string& title, double StepMetrics::*member,
                      int colour) {
  LineChart chart;
  chart.title = title;
  chart.x_label = "step";
  chart.height = 240;
  chart.y_from_zero = true;
  chart.cut_outliers = true;
  if (member == &StepMetrics::learning_rate) {
    chart.series.push_back({"", Mark::line, colour, step_numbers(history), column(history, member)});
  } else {
    add_curve(chart, history, column(history, member), colour, "");
  }
  return chart;
}

std::string card(const std::string& content) { return fmt::format("<div class=\"card\">{}</div>\n", content); }

std::string figure(std::string_view name, std::string_view value) {
  return fmt::format("<div class=\"figure\"><b>{}</b><span>{}</span></div>\n", escape_markup(value),
                     escape_markup(name));
}

/// Mean of the last tenth of the finite losses, at least one and at most 100 of them.
double last_loss(const MetricsHistory& history) {
  const auto most = std::clamp<std::size_t>(history.steps.size() / 10, 1, 100);
  double sum = 0;
  std::size_t count = 0;
  for (auto step = history.steps.rbegin(); step != history.steps.rend() && count < most; ++step) {
    if (std::isfinite(step->loss)) sum += step->loss, ++count;
  }
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string key_figures(const MetricsHistory& history, const std::vector<TierComparison>& memory) {
  double seconds = 0;
  std::int64_t tokens = 0;
  std::size_t skipped = 0;
  for (const auto& step : history.steps) {
    if (std::isfinite(step.step_time)) seconds += step.step_time;
    tokens += step.num_tokens;
    skipped += step.skipped ? 1 : 0;
  }
  std::string out = "<div class=\"figures\">\n";
  out += figure("training loss, last steps", fmt::format("{:.4f}", last_loss(history)));
  const EvalMetrics* best = nullptr;
  for (const auto& evaluation : history.evaluations) {
    if (std::isfinite(evaluation.loss) && (best == nullptr || evaluation.loss < best->loss)) best = &evaluation;
  }
  if (best != nullptr) {
    out += figure(fmt::format("best evaluation loss, step {}", best->step), fmt::format("{:.4f}", best->loss));
    if (best->perplexity) out += figure("its perplexity", fmt::format("{:.4g}", *best->perplexity));
    if (best->preference) out += figure("its reward accuracy", fmt::format("{:.3f}", best->preference->accuracy));
  }
  out += figure("optimizer steps", format_count(history.steps.size()));
  if (skipped > 0) out += figure("of them skipped", format_count(skipped));
  out += figure("tokens", format_count(static_cast<std::uint64_t>(tokens)));
  out += figure("tokens a second, median",
                format_count(static_cast<std::uint64_t>(median(column(history, &StepMetrics::tokens_per_second)))));
  out += figure("time in steps", format_duration(seconds));
  for (const auto& tier : memory)
    out += figure(fmt::format("{} memory at the peak", tier.tier), format_bytes(tier.held.peak));
  return out + "</div>\n";
}

std::string memory_table(const TierComparison& tier) {
  std::string out =
      "<table><tr><th>class</th><th>planned at the peak</th><th>held at the peak</th><th>difference</th>"
      "<th>greatest of the class</th></tr>\n";
  const auto row = [&out](std::string_view name, std::uint64_t planned, std::uint64_t held, std::uint64_t greatest,
                          bool is_sum) {
    const auto difference = static_cast<std::int64_t>(held) - static_cast<std::int64_t>(planned);
    out += fmt::format("<tr{}><td>{}</td><td>{}</td><td>{}</td><td class=\"{}\">{}</td><td>{}</td></tr>\n",
                       is_sum ? " class=\"sum\"" : "", name, format_count(planned), format_count(held),
                       difference == 0 ? "good" : "bad", difference == 0 ? "0" : fmt::format("{:+}", difference),
                       is_sum ? "" : format_count(greatest));
  };
  for (std::size_t i = 0; i < kMemoryClasses.size(); ++i) {
    if (tier.planned.greatest[i] == 0 && tier.held.greatest[i] == 0) continue;
    row(kMemoryClasses[i], tier.planned.at_peak[i], tier.held.at_peak[i], tier.held.greatest[i], false);
  }
  row("peak", tier.planned.peak, tier.held.peak, 0, true);
  return out + "</table>\n";
}

std::string memory_section(const std::vector<TierComparison>& memory) {
  if (memory.empty()) return {};
  std::string out = "<h2>Memory</h2>\n";
  for (const auto& tier : memory) {
    out += fmt::format(
        "<p>{} tier{}, in bytes. {}</p>\n", tier.tier,
        tier.ranks > 1 ? fmt::format(", the rank of {} that needs most", tier.ranks) : "",
        tier.is_equal ? "Planned and held agree to the byte." : "<span class=\"bad\">Planned and held differ.</span>");
    out += card(draw(memory_chart(tier), Canvas::page) + memory_table(tier));
  }
  return out;
}

std::string time_section(const MetricsHistory& history) {
  double whole = 0, named = 0;
  std::vector<BarPart> parts;
  for (const auto& part : kTimeParts) {
    double seconds = 0;
    for (const auto& step : history.steps) seconds += step.time.*part.seconds;
    named += seconds;
    if (seconds > 0) parts.push_back({std::string(part.name), seconds, static_cast<int>(parts.size())});
  }
  for (const auto& step : history.steps) whole += std::isfinite(step.step_time) ? step.step_time : 0.0;
  if (whole > named * 1.001) parts.push_back({"other", whole - named, 7});
  if (parts.empty()) return {};
  whole = std::max(whole, named);

  BarChart chart;
  chart.bars = {{"", parts}};
  chart.format = format_duration;
  const auto steps = static_cast<double>(history.steps.size());
  std::string table = "<table><tr><th>part</th><th>seconds</th><th>share</th><th>milliseconds a step</th></tr>\n";
  for (const auto& part : parts) {
    table += fmt::format("<tr><td>{}</td><td>{:.2f}</td><td>{:.1f} %</td><td>{:.2f}</td></tr>\n", part.label,
                         part.value, 100 * part.value / whole, 1000 * part.value / steps);
  }
  return "<h2>Where the time went</h2>\n" + card(draw(chart, Canvas::page) + table + "</table>\n");
}

std::vector<TierComparison> read_memory(const std::filesystem::path& output_dir) {
  const auto plan = output_dir / "plan.json", memory = output_dir / "memory.json";
  if (!std::filesystem::exists(plan) || !std::filesystem::exists(memory)) return {};
  return compare_memory(read_json_file(plan), read_json_file(memory));
}

}  // namespace

LineChart loss_chart(const MetricsHistory& history, const std::string& subtitle) {
  LineChart chart;
  chart.title = "Training loss";
  chart.subtitle = subtitle;
  chart.x_label = "step";
  add_curve(chart, history, column(history, &StepMetrics::loss), 0, "training");
  if (!history.evaluations.empty()) {
    Series points{"evaluation", Mark::points, 1, {}, {}};
    for (const auto& evaluation : history.evaluations) {
      points.x.push_back(static_cast<double>(evaluation.step));
      points.y.push_back(evaluation.loss);
    }
    chart.series.push_back(std::move(points));
  }
  return chart;
}

void write_report(const std::filesystem::path& output_dir, const std::string& title) {
  const auto history = read_metrics(output_dir / "metrics.jsonl");
  const auto memory = read_memory(output_dir);
  write_text_file(output_dir / "loss.svg", draw(loss_chart(history, title), Canvas::file));

  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>{}</title>\n<style>{}{}</style>"
      "</head>\n<body><main>\n<h1>{}</h1>\n<p>{}</p>\n",
      escape_markup(title), kPageStyle, chart_style(), escape_markup(title),
      escape_markup(std::filesystem::absolute(output_dir).lexically_normal().filename().string()));
  page += key_figures(history, memory);
  page += card(draw(loss_chart(history, ""), Canvas::page));
  page += card(draw(small_chart(history, "Learning rate", &StepMetrics::learning_rate, 2), Canvas::page));
  page += card(draw(small_chart(history, "Gradient norm, before clipping", &StepMetrics::grad_norm, 3), Canvas::page));
  page += card(draw(small_chart(history, "Tokens a second", &StepMetrics::tokens_per_second, 6), Canvas::page));
  page += memory_section(memory);
  page += time_section(history);
  page += "<footer>Written by heddle from metrics.jsonl, plan.json and memory.json of this folder.</footer>\n";
  write_text_file(output_dir / "report.html", page + "</main></body></html>\n");
}

}  // namespace heddle
