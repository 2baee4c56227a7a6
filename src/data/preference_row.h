#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "data/conversation.h"
#include "data/row_fields.h"

namespace heddle {

/// Two answers to one prompt, of which the first is preferred: as conversations, or as texts.
struct PreferenceRow {
  std::optional<Conversation> chosen, rejected;
  std::optional<TextPair> chosen_text, rejected_text;
  std::vector<std::string_view> used;  ///< fields that are part of it
};

/// The fields `chosen` and `rejected` (or `chosen_messages`, `rejected_messages`) of a row that has them: texts, lists
/// of messages, or one message each. The prompt is `prompt`, or `messages` or `conversations` before single messages,
/// or Alpaca's `instruction`; a row without one holds it in both answers, as their common beginning (TRL's implicit
/// prompt). `has_chat_template` false: Alpaca's rows become its own texts. Throws Error saying what is wrong.
PreferenceRow read_preference(const RowFields& fields, bool has_chat_template);

}  // namespace heddle
