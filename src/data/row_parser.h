#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/conversation.h"
#include "data/row_fields.h"
#include "data/row_records.h"

namespace heddle {

enum class RowFormat { text, input_ids, messages, sharegpt, alpaca, pair, chat_pair, preference, chat_preference };

/// "ShareGPT conversations", ...
std::string_view describe(RowFormat format);

/// One JSON row, checked but not tokenized: it holds the one of these that its format says.
struct Row {
  RowFormat format = RowFormat::text;
  std::optional<std::string> text;
  std::optional<std::vector<std::int32_t>> input_ids, labels;
  std::optional<Conversation> conversation;
  std::optional<TextPair> pair;
  // Of a preference pair the rejected answer; the chosen one is above.
  std::optional<Conversation> rejected_conversation;
  std::optional<TextPair> rejected_pair;
  std::vector<std::string> ignored_fields;  // present, but no part of what is trained
};

/// How rows are read.
struct RowRules {
  std::int32_t vocab_size = 0;
  ColumnNames columns;
  bool has_chat_template = true;  ///< false: Alpaca's rows become its own texts
  bool preference = false;        ///< rows are pairs of a chosen and a rejected answer, all of them; false: none is
};

/// Reads one row and finds its format by its fields; where several would fit, one of a field that `columns` names comes
/// first. Throws RowError.
Row parse_row(const Record& record, const RowRules& rules);

}  // namespace heddle
