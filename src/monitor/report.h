#pragma once

#include <filesystem>
#include <string>

#include "monitor/chart.h"
#include "monitor/metrics.h"

namespace heddle {

/// Training loss by step, its trend, and the evaluations.
LineChart loss_chart(const MetricsHistory& history, const std::string& subtitle);

/// Writes loss.svg and report.html (one file that needs no other) into `output_dir`, from its metrics.jsonl and, where
/// they are there, plan.json and memory.json. `title` says what was trained.
void write_report(const std::filesystem::path& output_dir, const std::string& title);

}  // namespace heddle
