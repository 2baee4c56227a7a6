#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "monitor/chart.h"
#include "monitor/svg.h"

namespace heddle {
namespace {

constexpr double kMargin = 20, kBarHeight = 30, kBarDistance = 44, kLegendRow = 22;

double total(const Bar& bar) {
  double sum = 0;
  for (const auto& part : bar.parts) sum += part.value;
  return sum;
}

/// Each label with its colour, once, in order of appearance; parts that are zero everywhere are not worth a place.
std::vector<std::pair<std::string, int>> legend_of(const BarChart& chart) {
  std::vector<std::pair<std::string, int>> legend;
  for (const auto& bar : chart.bars) {
    for (const auto& part : bar.parts) {
      const std::pair<std::string, int> entry{part.label, part.colour};
      if (part.value > 0 && std::find(legend.begin(), legend.end(), entry) == legend.end()) legend.push_back(entry);
    }
  }
  return legend;
}

struct Placed {
  double x;
  int row;
};
std::vector<Placed> placed_in_rows(const std::vector<std::pair<std::string, int>>& legend, double width) {
  std::vector<Placed> places;
  double x = kMargin;
  int row = 0;
  for (const auto& [label, colour] : legend) {
    const double needed = 18 + text_width(label);
    if (x > kMargin && x + needed > width - kMargin) x = kMargin, ++row;
    places.push_back({x, row});
    x += needed + 22;
  }
  return places;
}

}  // namespace

std::string draw(const BarChart& chart, Canvas canvas) {
  const auto legend = legend_of(chart);
  const auto places = placed_in_rows(legend, chart.width);
  const double top = chart.title.empty() ? 8 : chart.subtitle.empty() ? 46 : 64;
  const double bars_end = top + kBarDistance * static_cast<double>(chart.bars.size());
  const double height = bars_end + kLegendRow * (places.empty() ? 0 : places.back().row + 1) + 8;

  double label_width = 0, value_width = 0, greatest = 0;
  for (const auto& bar : chart.bars) {
    label_width = std::max(label_width, text_width(bar.label));
    value_width = std::max(value_width, text_width(chart.format(total(bar))));
    greatest = std::max(greatest, total(bar));
  }
  const double left = kMargin + (label_width > 0 ? label_width + 14 : 0);
  const double scale = (chart.width - kMargin - value_width - 12 - left) / std::max(greatest, 1e-300);

  Svg svg(chart.width, height, canvas, chart.title);
  if (!chart.title.empty()) svg.text(kMargin, 28, chart.title, "title");
  if (!chart.subtitle.empty()) svg.text(kMargin, 47, chart.subtitle, "text");
  double y = top;
  for (const auto& bar : chart.bars) {
    svg.text(left - 14, y + kBarHeight / 2 + 4, bar.label, "text", "end");
    double x = left;
    for (const auto& part : bar.parts) {
      const double width = part.value * scale;
      // A pixel of background keeps neighbours apart; what is too thin to see stays out of the picture, not of the sum.
      if (width >= 0.5) {
        svg.rectangle(x, y, std::max(0.5, width - (width > 3 ? 1 : 0)), kBarHeight, width > 6 ? 2 : 0,
                      fmt::format("f{}", part.colour), fmt::format("{}: {}", part.label, chart.format(part.value)));
      }
      x += width;
    }
    svg.text(x + 10, y + kBarHeight / 2 + 4, chart.format(total(bar)), "strong");
    y += kBarDistance;
  }
  for (std::size_t i = 0; i < legend.size(); ++i) {
    const double row_y = bars_end + 8 + kLegendRow * places[i].row;
    svg.rectangle(places[i].x, row_y - 8, 11, 11, 2, fmt::format("f{}", legend[i].second));
    svg.text(places[i].x + 18, row_y + 2, legend[i].first, "text");
  }
  return std::move(svg).finish();
}

}  // namespace heddle
