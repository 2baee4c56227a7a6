#include "planner/length_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "data/token_limit.h"
#include "monitor/chart.h"
#include "train/compile.h"

namespace heddle {
namespace {

constexpr std::int64_t kShortest = 512, kLongest = 131072;
constexpr double kGiB = 0x1p30;

std::vector<RunConfig> variants(RunConfig run, LengthTable& table) {
  std::vector<RunConfig> runs;
  if (run.recompute == Recompute::automatic) run.recompute = Recompute::full;
  run.block_activations.clear();
  if (run.ranks > 1) {
    // Weights that are offloaded are shared too: there is no lower stage.
    for (int stage = run.offload_param == OffloadDevice::none ? 0 : 3; stage <= 3; ++stage) {
      runs.push_back(run);
      runs.back().zero_stage = stage;
      table.columns.push_back({fmt::format("stage {}", stage), {}});
    }
  } else {
    for (const auto& [name, mode] : {std::pair{"none", Recompute::none}, std::pair{"selective", Recompute::selective},
                                     std::pair{"full", Recompute::full}}) {
      runs.push_back(run);
      runs.back().recompute = mode;
      table.columns.push_back({fmt::format("recompute: {}", name), {}});
    }
  }
  return runs;
}

}  // namespace

LengthTable plan_by_length(const RunConfig& run, const ModelConfig& model, const WeightRules& rules) {
  LengthTable table;
  table.rows = run.per_device_train_batch_size;
  auto runs = variants(run, table);
  const std::int64_t longest = std::min({model.max_positions, kLongest, kMostTokens / table.rows});
  for (std::int64_t length = kShortest; length <= longest; length *= 2) {
    table.lengths.push_back(length);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      runs[i].max_length = length;
      const StreamCapacity capacity{length * table.rows, table.rows};
      table.columns[i].bills.push_back(compile_training(model, runs[i], rules, capacity, std::nullopt).plan.device);
    }
  }
  return table;
}

std::string length_text(const LengthTable& table) {
  if (table.lengths.empty()) return {};
  std::string text = fmt::format("\nactivations (and peak) of {} row{} by length\n{:<12}", table.rows,
                                 table.rows == 1 ? "" : "s", "max_length");
  for (const auto& column : table.columns) text += fmt::format("{:>26}", column.name);
  text += "\n";
  for (std::size_t i = 0; i < table.lengths.size(); ++i) {
    text += fmt::format("{:<12}", table.lengths[i]);
    for (const auto& column : table.columns) {
      const Bill& bill = column.bills[i];
      const auto activations = bill.greatest[static_cast<std::size_t>(BufferClass::activations)];
      text += fmt::format("{:>26}", fmt::format("{} ({})", format_bytes(activations), format_bytes(bill.peak)));
    }
    text += "\n";
  }
  return text;
}

std::string length_image(const LengthTable& table, const std::string& title, std::optional<std::uint64_t> budget) {
  LineChart chart;
  chart.title = title;
  chart.subtitle = "peak of a rank's device memory in GiB, by tokens in a row";
  chart.x_label = "max_length";
  chart.log_x = true;
  chart.y_from_zero = true;
  const std::vector<double> lengths(table.lengths.begin(), table.lengths.end());
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    Series series{table.columns[i].name, Mark::points, static_cast<int>(i), lengths, {}};
    for (const Bill& bill : table.columns[i].bills) series.y.push_back(static_cast<double>(bill.peak) / kGiB);
    chart.series.push_back(std::move(series));
  }
  if (budget) {
    const std::vector<double> level(lengths.size(), static_cast<double>(*budget) / kGiB);
    chart.series.push_back({"device_memory", Mark::line, static_cast<int>(table.columns.size()), lengths, level});
  }
  return draw(chart, Canvas::file);
}

}  // namespace heddle
