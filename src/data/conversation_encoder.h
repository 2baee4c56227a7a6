#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "data/chat_template.h"
#include "data/conversation.h"
#include "data/row_encoder.h"
#include "data/token_alignment.h"

namespace heddle {

/// Which tokens of a conversation are targets; the words are those of the run file.
struct LabelRules {
  bool assistant_only = false;
  std::optional<bool> completion_only;  ///< absent: true for prompts and completions
  bool last_only = false;               ///< of the assistant's turns
};

/// A row's ids, and its labels: empty where every token is a target.
struct LabelledIds {
  std::vector<std::int32_t> ids, labels;
};

/// Conversations, and prompts with completions, to ids and labels. The ids are those of the whole text the template
/// renders, as transformers' apply_chat_template has them; nothing is added but BOS, where `add_bos` asks for one. May
/// be used by many threads at once.
class ConversationEncoder {
 public:
  /// `encoder` and `chat_template` must outlive it; without a template, conversations are an Error.
  ConversationEncoder(const RowEncoder& encoder, const ChatTemplate* chat_template, LabelRules rules);

  /// Targets are, as TRL's SFTTrainer has them: all tokens; of a prompt and completion, the completion (from where the
  /// prompt's own ids and the whole's part) to the end. With assistant_only what {% generation %} encloses, or else the
  /// assistant's turns from behind the generation prompt to the end of what the template renders of them, terminator
  /// and all (not what a template that always ends with a generation prompt writes behind it). Where a message has a
  /// weight, the assistant's turns but those of weight 0, and other messages of weight 1. Throws Error where the
  /// template refuses the row, and where it renders a turn otherwise once more follow it.
  LabelledIds encode(const Conversation& conversation) const;
  /// As a text row is, with special tokens and end-of-text.
  LabelledIds encode(const TextPair& pair) const;

 private:
  class Labeller;

  const RowEncoder* encoder_;
  const ChatTemplate* template_;
  LabelRules rules_;
  SpecialIds special_;
  bool always_prompts_ = false;  // the template ends with a generation prompt, asked for or not
};

}  // namespace heddle
