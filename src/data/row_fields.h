#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/row_records.h"
#include "formats/json.h"

namespace heddle {

/// Fields of rows by the name this program has for them, with the name that the file has: {"messages": "chat"}.
using ColumnNames = std::map<std::string, std::string>;

/// Throws Error if a name is no field of rows, and where two are read from one column.
void check_columns(const ColumnNames& columns);

/// The fields of one JSON row, checked as JSON, before anything is made of them.
struct RowFields {
  std::optional<std::string> text;
  std::string text_problem;  ///< why text, which is there, is none
  std::optional<std::vector<std::int32_t>> input_ids, labels;
  Json values = Json::object();  ///< the other fields that some format knows, by our names
  /// Every field in order: our name for it ("" if there is none), and the file's.
  std::vector<std::pair<std::string, std::string>> names;

  bool has(std::string_view name) const;
  /// Null if it is absent or null.
  const Json* find(std::string_view name) const;
};

/// Reads one object: strict JSON (UTF-8, no duplicate keys, no NaN, at most 64 levels), whole ids in 0..vocab_size-1,
/// labels the same or -100. Throws RowError.
RowFields read_fields(const Record& record, std::int32_t vocab_size, const ColumnNames& columns);

/// The names of fields that some format knows.
bool is_row_field(std::string_view name);

}  // namespace heddle
