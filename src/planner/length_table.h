#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"
#include "models/model_config.h"
#include "program/passes/passes.h"
#include "train/weight_rules.h"

namespace heddle {

/// What one rank needs on its device by length of a row and by what the run could choose: for several ranks the ZeRO
/// stages 0 to 3 (3 alone where weights are offloaded), else the modes of recomputation. The other settings are the
/// run's; `recompute: auto` counts as full, what it can come down to.
struct LengthTable {
  struct Column {
    std::string name;         ///< "stage 2", "recompute: full"
    std::vector<Bill> bills;  ///< by length
  };
  std::vector<std::int64_t> lengths;  ///< powers of two from 512 to what the model has positions for, at most 131,072
  std::vector<Column> columns;
  std::int64_t rows = 1;  ///< in a micro-batch
};
LengthTable plan_by_length(const RunConfig& run, const ModelConfig& model, const WeightRules& rules);

/// Activations and, in parentheses, the peak.
std::string length_text(const LengthTable& table);

/// Peak in GiB over length, a line for each column, as SVG; `budget` bytes as a line of its own.
std::string length_image(const LengthTable& table, const std::string& title, std::optional<std::uint64_t> budget);

}  // namespace heddle
