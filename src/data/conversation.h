#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "data/row_fields.h"
#include "formats/json.h"

namespace heddle {

/// Messages as chat templates expect them: {"role", "content", "tool_calls", ...}, without what only training reads.
struct Conversation {
  Json messages = Json::array();  ///< at least one
  Json tools;                     ///< null: none
  Json variables;                 ///< chat_template_kwargs; null: none
  /// Of each message: whether it is trained on, where the row says so.
  std::vector<std::optional<bool>> weights;
  /// So many first messages are the prompt of a prompt and completion.
  std::optional<std::size_t> prompt_messages;
};

/// OpenAI's messages (role, content), ShareGPT's (from, value) or LLaMA-Factory's parts ({type, value}) of one row.
/// `field` names the list in errors. Throws Error saying what is wrong; `is_sharegpt` tells which it was.
Conversation read_messages(const RowFields& fields, const Json& list, const std::string& field, bool& is_sharegpt);

/// Prompt and completion as two lists of messages.
Conversation read_chat_pair(const RowFields& fields);

/// Alpaca's instruction, input and output; LLaMA-Factory's system and history too. `answer` names the output's field.
Conversation read_alpaca(const RowFields& fields, const char* answer = "output");

/// The texts that Alpaca was trained on (Taori et al. 2023, github.com/tatsu-lab/stanford_alpaca), for models without a
/// chat template.
struct TextPair {
  std::string prompt, completion;
};
TextPair alpaca_texts(const RowFields& fields, const char* answer = "output");

}  // namespace heddle
