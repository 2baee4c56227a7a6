#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

/// Where a drawing goes: a file of its own, with its style and background, or a page that has chart_style() in its
/// head.
enum class Canvas { file, page };

/// How a series is drawn: the measured values (faint), their trend (strong), or single points joined by a thin line.
enum class Mark { faint_line, line, points };

struct Series {
  std::string label;  ///< in the legend; empty: not named
  Mark mark = Mark::line;
  int colour = 0;            ///< 0..7, the palette of chart_style()
  std::vector<double> x, y;  ///< same length; what is not finite is left out
};

/// Series over a common x axis, drawn as SVG. Colours follow the reader's light or dark setting.
struct LineChart {
  std::string title, subtitle, x_label;
  std::vector<Series> series;
  bool log_x = false;         ///< needs x > 0
  bool y_from_zero = false;   ///< the y axis starts at 0
  bool cut_outliers = false;  ///< y ends a little above what 99 of 100 values reach
  double width = 860, height = 380;
};
std::string draw(const LineChart& chart, Canvas canvas);

struct BarPart {
  std::string label;
  double value = 0;
  int colour = 0;
};
struct Bar {
  std::string label;
  std::vector<BarPart> parts;
};
/// Horizontal bars of one scale, each a stack of parts; the legend names each part once.
struct BarChart {
  std::string title, subtitle;
  std::vector<Bar> bars;
  std::function<std::string(double)> format;  ///< of values, e.g. as bytes
  double width = 860;
};
std::string draw(const BarChart& chart, Canvas canvas);

/// The style sheet that drawings for Canvas::page need, without <style> tags.
std::string_view chart_style();

/// Text with & < > " ' escaped for XML and HTML.
std::string escape_markup(std::string_view text);

/// Round values (1, 2 or 5 times a power of ten apart) that cover [low, high] from inside, about `count` of them.
std::vector<double> nice_ticks(double low, double high, int count);
/// Powers of ten in [low, high], with 2 and 5 times them where there are few; low > 0.
std::vector<double> log_ticks(double low, double high);
/// A tick's text with as many digits as the distance to the next one asks for: "0.25", "1,500", "20k", "3e-4".
std::string format_tick(double value, double distance);

/// Centred moving mean over `window` finite values; what is not finite stays so.
std::vector<double> smoothed(const std::vector<double>& values, int window);

}  // namespace heddle
