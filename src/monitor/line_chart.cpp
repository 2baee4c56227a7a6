#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "monitor/chart.h"
#include "monitor/svg.h"

namespace heddle {
namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void include(double value) { low = std::min(low, value), high = std::max(high, value); }
  bool is_empty() const { return low > high; }
};

/// Maps values to pixels; y grows downwards.
struct Axis {
  Range values;
  double from = 0, to = 0;  // pixels of values.low and values.high
  bool logarithmic = false;

  double pixel(double value) const {
    const auto scaled = [this](double v) { return logarithmic ? std::log10(v) : v; };
    const double low = scaled(values.low), high = scaled(values.high);
    return from + (to - from) * (high > low ? (scaled(value) - low) / (high - low) : 0.5);
  }
};

bool is_drawable(const LineChart& chart, double x, double y) {
  return std::isfinite(x) && std::isfinite(y) && (!chart.log_x || x > 0);
}

Range x_range(const LineChart& chart) {
  Range range;
  for (const auto& series : chart.series) {
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      if (is_drawable(chart, series.x[i], series.y[i])) range.include(series.x[i]);
    }
  }
  return range.is_empty() ? Range{1, 1} : range;
}

/// The y values drawn, widened to the next ticks.
Range y_range(const LineChart& chart, std::vector<double>& ticks) {
  Range range;
  std::vector<double> all;
  for (const auto& series : chart.series) {
    for (std::size_t i = 0; i < series.x.size(); ++i) {
      if (!is_drawable(chart, series.x[i], series.y[i])) continue;
      range.include(series.y[i]);
      if (chart.cut_outliers) all.push_back(series.y[i]);
    }
  }
  if (range.is_empty()) range = {0, 1};
  if (all.size() >= 20) {
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(all.size() * 99 / 100);
    std::nth_element(all.begin(), at, all.end());
    range.high = std::min(range.high, *at * 1.25);
  }
  if (chart.y_from_zero) range.low = std::min(range.low, 0.0);
  if (range.high - range.low <= 1e-12 * std::abs(range.high)) {
    const double margin = range.high == 0 ? 1.0 : std::abs(range.high) * 0.1;
    range = {chart.y_from_zero ? range.low : range.low - margin, range.high + margin};
  }
  ticks = nice_ticks(range.low, range.high, 5);
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : range.high - range.low;
  const Range padded{std::floor(range.low / step + 1e-6) * step, std::ceil(range.high / step - 1e-6) * step};
  ticks = nice_ticks(padded.low, padded.high, static_cast<int>(std::lround((padded.high - padded.low) / step)));
  return padded;
}

/// A path through the points. Where several fall on one pixel column, their first, least, greatest and last are drawn,
/// so that a long run gives a small file that looks the same.
std::string path_of(const LineChart& chart, const Series& series, const Axis& x, const Axis& y) {
  std::string commands;
  const double top = std::min(y.from, y.to), bottom = std::max(y.from, y.to);
  double last_x = -1, last_y = -1;
  const auto add = [&](double px, double py) {
    if (px == last_x && py == last_y) return;
    commands += fmt::format("{}{:.1f} {:.1f}", commands.empty() ? "M" : "L", px, py);
    last_x = px, last_y = py;
  };
  for (std::size_t i = 0; i < series.x.size();) {
    if (!is_drawable(chart, series.x[i], series.y[i])) {
      ++i;
      continue;
    }
    const double column = std::floor(x.pixel(series.x[i]) * 2) / 2;
    Range seen;
    double first = 0, last = 0;
    int count = 0;
    for (; i < series.x.size(); ++i) {
      if (!is_drawable(chart, series.x[i], series.y[i])) continue;
      if (std::floor(x.pixel(series.x[i]) * 2) / 2 != column) break;
      last = std::clamp(y.pixel(series.y[i]), top, bottom);
      if (count++ == 0) first = last;
      seen.include(last);
    }
    add(column, first);
    if (count > 2) add(column, seen.low), add(column, seen.high);
    if (count > 1) add(column, last);
  }
  return commands;
}

void draw_axes(Svg& svg, const LineChart& chart, const Axis& x, const Axis& y, const std::vector<double>& y_ticks) {
  const double y_step = y_ticks.size() > 1 ? y_ticks[1] - y_ticks[0] : 1.0;
  for (const double tick : y_ticks) {
    svg.line(x.from, y.pixel(tick), x.to, y.pixel(tick), "grid");
    svg.text(x.from - 10, y.pixel(tick) + 4, format_tick(tick, y_step), "text", "end");
  }
  svg.line(x.from, y.from, x.to, y.from, "axis");
  const int most_ticks = static_cast<int>(std::clamp(x.values.high - x.values.low, 1.0, 7.0));  // x is counted
  const auto x_ticks =
      chart.log_x ? log_ticks(x.values.low, x.values.high) : nice_ticks(x.values.low, x.values.high, most_ticks);
  const double x_step = x_ticks.size() > 1 ? x_ticks[1] - x_ticks[0] : 1.0;
  for (const double tick : x_ticks) {
    const double step = chart.log_x ? std::max(1.0, tick / 10) : x_step;
    svg.line(x.pixel(tick), y.from, x.pixel(tick), y.from + 5, "axis");
    svg.text(x.pixel(tick), y.from + 19, format_tick(tick, step), "text", "middle");
  }
  svg.text(x.to, y.from + 36, chart.x_label, "text", "end");
}

constexpr double kMargin = 20, kMarkRoom = 22, kLegendGap = 18;

double legend_width(const LineChart& chart) {
  double width = 0;
  for (const auto& series : chart.series) {
    if (!series.label.empty()) width += kMarkRoom + text_width(series.label) + kLegendGap;
  }
  return std::max(0.0, width - kLegendGap);
}

void draw_legend(Svg& svg, const LineChart& chart, double left, double baseline) {
  for (const auto& series : chart.series) {
    if (series.label.empty()) continue;
    const double middle = baseline - 4;
    if (series.mark == Mark::points) {
      svg.circle(left + 11, middle, 4, fmt::format("f{}", series.colour));
    } else {
      const char* style = series.mark == Mark::line ? "line" : "thin";
      svg.line(left, middle, left + 15, middle, fmt::format("{} s{}", style, series.colour));
    }
    svg.text(left + kMarkRoom, baseline, series.label, "text");
    left += kMarkRoom + text_width(series.label) + kLegendGap;
  }
}

void draw_series(Svg& svg, const LineChart& chart, const Series& series, const Axis& x, const Axis& y) {
  const char* style = series.mark == Mark::line ? "line" : series.mark == Mark::points ? "thin" : "faint";
  svg.path(path_of(chart, series, x, y), fmt::format("{} s{}", style, series.colour));
  if (series.mark != Mark::points) return;
  constexpr std::size_t kMostPoints = 80;  // more would touch each other
  const auto stride = std::max<std::size_t>(1, series.x.size() / kMostPoints);
  for (std::size_t i = (series.x.size() + stride - 1) % stride; i < series.x.size(); i += stride) {
    if (!is_drawable(chart, series.x[i], series.y[i])) continue;
    const double py = std::clamp(y.pixel(series.y[i]), std::min(y.from, y.to), std::max(y.from, y.to));
    svg.circle(x.pixel(series.x[i]), py, 4, fmt::format("ring f{}", series.colour),
               fmt::format("{} {:g}: {:.4g}", chart.x_label, series.x[i], series.y[i]));
  }
}

struct LastValue {
  const Series* series = nullptr;  ///< null: no series has a strong line
  std::size_t index = 0;
  std::string text;
};

/// Of the first series with a strong line.
LastValue last_value(const LineChart& chart) {
  for (const auto& series : chart.series) {
    if (series.mark != Mark::line) continue;
    for (std::size_t i = series.x.size(); i-- > 0;) {
      const double y = series.y[i];
      if (!is_drawable(chart, series.x[i], y)) continue;
      return {&series, i, std::abs(y) >= 1000 ? format_tick(y, 1) : fmt::format("{:.4g}", y)};
    }
  }
  return {};
}

void draw_last_value(Svg& svg, const LastValue& last, const Axis& x, const Axis& y) {
  if (last.series == nullptr) return;
  const double px = x.pixel(last.series->x[last.index]),
               py = std::clamp(y.pixel(last.series->y[last.index]), y.to, y.from);
  svg.circle(px, py, 3, fmt::format("f{}", last.series->colour));
  svg.text(px + 9, py + 4, last.text, "strong");
}

}  // namespace

std::string draw(const LineChart& chart, Canvas canvas) {
  constexpr double kLeft = 64, kBottom = 50, kLegendRow = 22, kTitleSize = 17;
  const LastValue last = last_value(chart);
  const double right = std::max(64.0, text_width(last.text, 13) + 16);
  // Beside the title, or below it in a row of its own.
  const double legend = legend_width(chart);
  const bool is_beside = 2 * kMargin + text_width(chart.title, kTitleSize) + kLegendGap + legend <= chart.width;
  const double heading = chart.subtitle.empty() ? 28 : 47;
  const double top = heading + (is_beside || legend == 0 ? 20 : 20 + kLegendRow);
  std::vector<double> y_ticks;
  const Axis x{x_range(chart), kLeft, chart.width - right, chart.log_x};
  const Axis y{y_range(chart, y_ticks), chart.height - kBottom, top, false};

  Svg svg(chart.width, chart.height, canvas, chart.title);
  svg.text(kMargin, 28, chart.title, "title");
  if (!chart.subtitle.empty()) svg.text(kMargin, 47, chart.subtitle, "text");
  draw_legend(svg, chart, is_beside ? chart.width - kMargin - legend : kMargin, is_beside ? 28 : heading + kLegendRow);
  draw_axes(svg, chart, x, y, y_ticks);
  for (const auto& series : chart.series) draw_series(svg, chart, series, x, y);
  draw_last_value(svg, last, x, y);
  return std::move(svg).finish();
}

}  // namespace heddle
