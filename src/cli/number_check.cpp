#include "cli/number_check.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <string>

namespace heddle::cli {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::max();

CLI::Validator check(double least, bool above, double most, const std::string& expected, const char* name) {
  const auto complaint = [=](const std::string& text) -> std::string {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && (above ? value > least : value >= least) && value <= most) return "";
    return fmt::format("{}; expected a number {}", text, expected);
  };
  return CLI::Validator([complaint](std::string& text) { return complaint(text); }, name);
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  const bool is_bounded = most < std::numeric_limits<std::int64_t>::max();
  const auto expected = is_bounded ? fmt::format("from {} to {}", least, most) : fmt::format("of at least {}", least);
  const auto complaint = [=](const std::string& text) -> std::string {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    if (is_number && value >= least && value <= most) return "";
    return fmt::format("{}; expected a whole number {}", text, expected);
  };
  return CLI::Validator([complaint](std::string& text) { return complaint(text); }, "");
}

CLI::Validator at_least_0() { return check(0, false, kUnbounded, "of at least 0", "NONNEGATIVE"); }
CLI::Validator above_0() { return check(0, true, kUnbounded, "above 0", "POSITIVE"); }
CLI::Validator up_to(double most) {
  const auto expected = fmt::format("from 0 to {:.0f}", most);
  return check(0, false, most, expected, "");
}

}  // namespace heddle::cli
