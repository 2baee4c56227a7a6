#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/text.h"
#include "monitor/chart.h"

namespace heddle {

std::vector<double> nice_ticks(double low, double high, int count) {
  if (!(high > low)) return {low};
  const double rough = (high - low) / std::max(1, count);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double multiple : {1.0, 2.0, 5.0}) {
    if (multiple * power >= rough * (1 - 1e-9)) {
      step = multiple * power;
      break;
    }
  }
  std::vector<double> ticks;
  const auto first = static_cast<long>(std::ceil(low / step - 1e-9));
  const auto last = static_cast<long>(std::floor(high / step + 1e-9));
  for (long i = first; i <= last; ++i) ticks.push_back(static_cast<double>(i) * step);
  return ticks;
}

std::vector<double> log_ticks(double low, double high) {
  std::vector<double> ticks;
  const bool few = std::log10(high / low) < 2.5;
  for (int power = static_cast<int>(std::floor(std::log10(low))); std::pow(10.0, power) <= high; ++power) {
    for (const double multiple : {1.0, 2.0, 5.0}) {
      const double tick = multiple * std::pow(10.0, power);
      if ((multiple == 1.0 || few) && tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9)) ticks.push_back(tick);
    }
  }
  return ticks;
}

std::string format_tick(double value, double distance) {
  const double size = std::abs(value);
  if (size == 0) return "0";
  if (distance < 1e-3) {
    auto text = fmt::format("{:.1e}", value);  // 3.0e-04
    const auto e = text.find('e');
    auto digits = text.substr(0, e);
    if (digits.ends_with(".0")) digits.resize(digits.size() - 2);
    return fmt::format("{}e{}", digits, std::stoi(text.substr(e + 1)));
  }
  if (distance >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (distance >= 1e3 && size >= 1e4) return fmt::format("{:g}k", value / 1e3);
  if (distance >= 1) return (value < 0 ? "-" : "") + format_count(static_cast<std::uint64_t>(std::llround(size)));
  return fmt::format("{:.{}f}", value, static_cast<int>(std::ceil(-std::log10(distance) - 1e-9)));
}

std::vector<double> smoothed(const std::vector<double>& values, int window) {
  const auto count = values.size();
  std::vector<double> sums(count + 1), finite(count + 1);
  for (std::size_t i = 0; i < count; ++i) {
    const bool counts = std::isfinite(values[i]);
    sums[i + 1] = sums[i] + (counts ? values[i] : 0.0);
    finite[i + 1] = finite[i] + (counts ? 1.0 : 0.0);
  }
  std::vector<double> means(count, std::numeric_limits<double>::quiet_NaN());
  const auto reach = static_cast<std::size_t>(std::max(0, window / 2));
  for (std::size_t i = 0; i < count; ++i) {
    // The window shrinks at both ends alike, so that a steep start is not drawn flatter than it is.
    const auto side = std::min({reach, i, count - 1 - i});
    const double n = finite[i + side + 1] - finite[i - side];
    if (n > 0 && std::isfinite(values[i])) means[i] = (sums[i + side + 1] - sums[i - side]) / n;
  }
  return means;
}

}  // namespace heddle
