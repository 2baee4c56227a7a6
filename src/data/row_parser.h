#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/row_records.h"

namespace heddle {

/// One JSON row, checked but not tokenized: it holds either a text, or ids with labels where it has any.
struct Row {
  std::optional<std::string> text;
  std::optional<std::vector<std::int32_t>> input_ids, labels;
  std::vector<std::string> ignored_fields;  // present, but no part of what is trained
};

/// Reads one object: strict JSON (UTF-8, no duplicate keys, no NaN, at most 64 levels), whole ids in 0..vocab_size-1,
/// labels the same or -100. Throws RowError.
Row parse_row(const Record& record, std::int32_t vocab_size);

}  // namespace heddle
