#include "monitor/metrics.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "formats/files.h"
#include "formats/json.h"

namespace heddle {
namespace {

/// fmt's "{}" is the shortest text that reads back to the same double.
std::string number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

/// Empty where there is no file.
std::string read_text(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::status(path, error).type() == std::filesystem::file_type::not_found) return {};
  return read_text_file(path, std::numeric_limits<std::size_t>::max());
}

double real(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::int64_t whole(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? found->get<std::int64_t>() : 0;
}

std::string preference_members(const std::optional<PreferenceMetrics>& metrics, std::string_view prefix) {
  std::string members;
  if (!metrics) return members;
  for (const auto& part : kPreferenceParts)
    members += fmt::format(R"(, "{}{}": {})", prefix, part.name, number((*metrics).*part.value));
  return members;
}

std::optional<PreferenceMetrics> preference_of(const Json& line, const std::string& prefix) {
  if (!line.contains(prefix + std::string(kPreferenceParts[0].name))) return std::nullopt;
  PreferenceMetrics metrics;
  for (const auto& part : kPreferenceParts) metrics.*part.value = real(line, (prefix + std::string(part.name)).c_str());
  return metrics;
}

StepMetrics step_of(const Json& line) {
  StepMetrics metrics;
  metrics.step = whole(line, "step");
  metrics.epoch = real(line, "epoch");
  metrics.loss = real(line, "loss");
  metrics.grad_norm = real(line, "grad_norm");
  metrics.learning_rate = real(line, "learning_rate");
  metrics.num_tokens = whole(line, "num_tokens");
  metrics.num_supervised_tokens = whole(line, "num_supervised_tokens");
  metrics.tokens_per_second = real(line, "tokens_per_second");
  metrics.step_time = real(line, "step_time");
  if (const auto skipped = line.find("skipped"); skipped != line.end()) metrics.skipped = *skipped == true;
  if (line.contains("loss_scale")) metrics.loss_scale = real(line, "loss_scale");
  metrics.preference = preference_of(line, "");
  if (const auto time = line.find("time"); time != line.end() && time->is_object()) {
    for (const auto& part : kTimeParts) {
      const double seconds = real(*time, std::string(part.name).c_str());
      metrics.time.*part.seconds = std::isfinite(seconds) ? seconds : 0.0;
    }
  }
  return metrics;
}

/// Calls visit(line, end) for each whole line that is an object with a step, `end` being the offset behind its newline,
/// until visit returns false or a line is none.
template <typename Visit>
void for_each_line(std::string_view text, Visit&& visit) {
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n', begin)) {
    const Json line = Json::parse(text.substr(begin, end - begin), nullptr, false);
    begin = end + 1;
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) return;
    if (!visit(line, begin)) return;
  }
}

std::size_t bytes_before_step(const std::filesystem::path& path, std::int64_t first_step) {
  std::size_t keep = 0;
  if (first_step > 1) {
    for_each_line(read_text(path), [&](const Json& line, std::size_t end) {
      if (line["step"].get<std::int64_t>() >= first_step) return false;
      keep = end;
      return true;
    });
  }
  return keep;
}

}  // namespace

std::string metrics_line(const StepMetrics& metrics) {
  const bool skipped = metrics.skipped || !std::isfinite(metrics.loss) || !std::isfinite(metrics.grad_norm);
  std::string line =
      fmt::format(R"({{"step": {}, "epoch": {}, "loss": {}, "grad_norm": {}, "learning_rate": {}, "num_tokens": {}, )"
                  R"("num_supervised_tokens": {}, "tokens_per_second": {}, "step_time": {}, "skipped": {})",
                  metrics.step, number(metrics.epoch), number(metrics.loss), number(metrics.grad_norm),
                  number(metrics.learning_rate), metrics.num_tokens, metrics.num_supervised_tokens,
                  number(metrics.tokens_per_second), number(metrics.step_time), skipped);
  if (metrics.loss_scale) line += fmt::format(R"(, "loss_scale": {})", number(*metrics.loss_scale));
  line += preference_members(metrics.preference, "");
  const char* separator = R"(, "time": {)";
  for (const auto& part : kTimeParts) {
    line += fmt::format(R"({}"{}": {})", separator, part.name, number(metrics.time.*part.seconds));
    separator = ", ";
  }
  return line + "}}\n";
}

std::string metrics_line(const EvalMetrics& metrics) {
  std::string line = fmt::format(R"({{"step": {}, "eval_loss": {})", metrics.step, number(metrics.loss));
  if (metrics.perplexity) line += fmt::format(R"(, "eval_perplexity": {})", number(*metrics.perplexity));
  line += fmt::format(R"(, "eval_num_tokens": {})", metrics.num_tokens);
  return line + preference_members(metrics.preference, "eval_") + "}\n";
}

MetricsHistory read_metrics(const std::filesystem::path& path) {
  MetricsHistory history;
  for_each_line(read_text(path), [&](const Json& line, std::size_t) {
    if (line.contains("eval_loss")) {
      EvalMetrics metrics{whole(line, "step"), real(line, "eval_loss"), std::nullopt, whole(line, "eval_num_tokens"),
                          preference_of(line, "eval_")};
      if (line.contains("eval_perplexity")) metrics.perplexity = real(line, "eval_perplexity");
      history.evaluations.push_back(metrics);
    } else {
      history.steps.push_back(step_of(line));
    }
    return true;
  });
  return history;
}

MetricsFile::MetricsFile(const std::filesystem::path& path, std::int64_t first_step)
    : file_(path, bytes_before_step(path, first_step)) {}

}  // namespace heddle
