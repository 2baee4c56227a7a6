#include "data/conversation_encoder.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

constexpr std::int32_t kIgnoredLabel = -100;

/// Bytes [begin, end) of the rendered text.
struct Bytes {
  std::size_t begin, end;
};

std::size_t common_prefix(std::string_view a, std::string_view b) {
  return static_cast<std::size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

bool is_assistant(const Json& message) { return message.at("role") == "assistant"; }

/// As the first of Llama 3's: a generation prompt stands behind an answer as well, and is gone when a question follows.
bool always_prompts(const ChatTemplate& chat_template) {
  Json messages = Json::array({{{"role", "user"}, {"content", "q"}}});
  const auto render = [&](bool add_generation_prompt = false) {
    return chat_template.render(messages, nullptr, Json::object(), add_generation_prompt).text;
  };
  try {
    const std::string question = render();
    messages.push_back({{"role", "assistant"}, {"content", "a"}});
    const std::string answer = render();
    if (answer != render(true)) return false;
    messages.push_back({{"role", "user"}, {"content", "r"}});
    const std::string prompt_end = answer.substr(common_prefix(answer, render()));
    return !prompt_end.empty() && question.ends_with(prompt_end);
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

/// One conversation, rendered and encoded.
class ConversationEncoder::Labeller {
 public:
  Labeller(const ConversationEncoder& encoder, const Conversation& conversation)
      : encoder_(encoder),
        conversation_(conversation),
        rendering_(encoder.template_->render(conversation.messages, conversation.tools, conversation.variables, false)),
        ids_(encode_text(encoder.encoder_->tokenizer(), rendering_.text)),
        alignment_(encoder.special_, rendering_.text, ids_),
        targets_(ids_.size(), true) {}

  LabelledIds label() && {
    const LabelRules& rules = encoder_.rules_;
    const auto& weights = conversation_.weights;
    const bool has_weights = std::any_of(weights.begin(), weights.end(), [](auto w) { return w.has_value(); });
    bool masks = false;
    if (conversation_.prompt_messages && rules.completion_only.value_or(true)) {
      keep_only({{prompt_end(*conversation_.prompt_messages), rendering_.text.size()}});
      masks = true;
    }
    if (has_weights || rules.assistant_only || rules.last_only) {
      keep_only(has_weights || !encoder_.template_->marks_generation() ? weighted_messages() : marked_turns());
      masks = true;
    }
    LabelledIds out;
    if (masks) {
      out.labels.assign(ids_.size(), kIgnoredLabel);
      for (std::size_t i = 0; i < ids_.size(); ++i) {
        if (targets_[i]) out.labels[i] = ids_[i];
      }
    }
    out.ids = std::move(ids_);
    return out;
  }

 private:
  std::string render(std::size_t messages, bool add_generation_prompt) const {
    Json first = Json::array();
    for (std::size_t i = 0; i < messages; ++i) first.push_back(conversation_.messages[i]);
    return encoder_.template_->render(first, conversation_.tools, conversation_.variables, add_generation_prompt).text;
  }

  void keep_only(const std::vector<Bytes>& ranges) {
    std::vector<bool> kept(ids_.size(), false);
    for (const auto& [begin, end] : ranges) {
      if (begin >= end) continue;
      for (std::size_t i = alignment_.token_from(begin); i < alignment_.token_until(end); ++i) kept[i] = true;
    }
    for (std::size_t i = 0; i < kept.size(); ++i) targets_[i] = targets_[i] && kept[i];
  }

  std::vector<Bytes> marked_turns() const {
    std::vector<Bytes> turns;
    for (const auto& [begin, end] : rendering_.generated) turns.push_back({begin, end});
    if (encoder_.rules_.last_only && turns.size() > 1) turns.erase(turns.begin(), turns.end() - 1);
    return turns;
  }

  std::vector<Bytes> weighted_messages() const {
    const Json& messages = conversation_.messages;
    std::size_t last = messages.size(), turns = 0;  // of the assistant's
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (!is_assistant(messages[i])) continue;
      last = i;
      ++turns;
    }
    const auto& marks = rendering_.generated;
    const bool has_marks = !marks.empty() && marks.size() == turns;  // one for each turn
    std::vector<Bytes> ranges;
    for (std::size_t i = 0, turn = 0; i < messages.size(); ++i) {
      if (is_assistant(messages[i])) ++turn;
      const bool is_turn = is_assistant(messages[i]) && (i == last || !encoder_.rules_.last_only);
      if (!conversation_.weights[i].value_or(is_turn)) continue;
      if (is_assistant(messages[i]) && has_marks) {
        ranges.push_back({marks[turn - 1].first, marks[turn - 1].second});
        continue;
      }
      const std::size_t begin = is_assistant(messages[i]) ? turn_begin(i) : i == 0 ? 0 : message_end(i - 1);
      ranges.push_back({begin, message_end(i)});
    }
    return ranges;
  }

  [[noreturn]] void refuse_changed(std::size_t message) const {
    fail(
        "the chat template renders the messages up to number {} otherwise once others follow, so that the tokens of "
        "each cannot be told; a template with {{% generation %}} marks, or train_on: last, can serve",
        message + 1);
  }

  /// One past the last byte of the message.
  std::size_t message_end(std::size_t message) const {
    if (encoder_.always_prompts_ && is_assistant(conversation_.messages[message])) {
      if (const auto end = alignment_.end_of_special(content_end(message))) return *end;  // its terminator
    }
    if (message + 1 == conversation_.messages.size()) return rendering_.text.size();
    const std::string prefix = render(message + 1, false);
    if (!std::string_view(rendering_.text).starts_with(prefix)) refuse_changed(message);
    return prefix.size();
  }

  /// Behind the generation prompt, as far as the text has that: some templates ask for more (a thought) than they
  /// render of a turn that is there.
  std::size_t turn_begin(std::size_t message) const {
    std::string prompt;
    try {
      prompt = render(message, true);
    } catch (const Error&) {
      return content_begin(message);  // some templates render nothing that does not have, say, a question
    }
    const std::size_t begin = common_prefix(rendering_.text, prompt);
    if (begin < prompt.size() && message > 0 && begin < render(message, false).size()) refuse_changed(message - 1);
    return begin;
  }

  /// Where the text starts to depend on the message's content.
  std::size_t content_begin(std::size_t message) const {
    Json messages = conversation_.messages;
    Json& content = messages[message]["content"];
    if (!content.is_string()) fail("the chat template renders no text up to message {}", message + 1);
    content = content.get<std::string>().starts_with("X") ? "Y" : "X";
    const auto other = encoder_.template_->render(messages, conversation_.tools, conversation_.variables, false);
    return common_prefix(rendering_.text, other.text);
  }

  /// Of a turn that begins with its content, trimmed or not; else where it begins.
  std::size_t content_end(std::size_t message) const {
    const std::size_t begin = turn_begin(message);
    const Json& turn = conversation_.messages[message];
    const auto content = turn.find("content");
    if (content == turn.end() || !content->is_string()) return begin;
    std::string_view text = content->get_ref<const std::string&>();
    if (std::string_view(rendering_.text).substr(begin).starts_with(text)) return begin + text.size();
    constexpr std::string_view kSpace = " \t\r\n";
    text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
    text = text.substr(0, text.find_last_not_of(kSpace) + 1);
    return std::string_view(rendering_.text).substr(begin).starts_with(text) ? begin + text.size() : begin;
  }

  std::size_t prompt_end(std::size_t messages) const {
    const bool goes_on = is_assistant(conversation_.messages[messages - 1]);
    return common_prefix(rendering_.text, render(messages, !goes_on));
  }

  const ConversationEncoder& encoder_;
  const Conversation& conversation_;
  ChatTemplate::Rendering rendering_;
  std::vector<std::int32_t> ids_;
  TokenAlignment alignment_;
  std::vector<bool> targets_;
};

ConversationEncoder::ConversationEncoder(const RowEncoder& encoder, const ChatTemplate* chat_template, LabelRules rules)
    : encoder_(&encoder), template_(chat_template), rules_(rules), special_(encoder.tokenizer()) {
  always_prompts_ = template_ != nullptr && always_prompts(*template_);
}

LabelledIds ConversationEncoder::encode(const Conversation& conversation) const {
  if (template_ == nullptr) {
    fail(
        "conversations need a chat template, and the tokenizer has none (chat_template.jinja, or chat_template in "
        "tokenizer_config.json)");
  }
  LabelledIds out = Labeller(*this, conversation).label();
  if (encoder_->must_add_bos(out.ids)) {
    out.ids.insert(out.ids.begin(), *encoder_->tokenizer().bos_id());
    if (!out.labels.empty()) out.labels.insert(out.labels.begin(), kIgnoredLabel);
  }
  return out;
}

LabelledIds ConversationEncoder::encode(const TextPair& pair) const {
  LabelledIds out;
  const std::string text = pair.prompt + pair.completion;
  out.ids = encode_text(encoder_->tokenizer(), text);
  const std::size_t from = TokenAlignment(special_, text, out.ids).token_from(pair.prompt.size());
  const std::size_t leading = encoder_->surround(out.ids);
  if (rules_.completion_only.value_or(true)) {
    out.labels = out.ids;
    std::fill_n(out.labels.begin(), static_cast<std::ptrdiff_t>(std::min(leading + from, out.labels.size())),
                kIgnoredLabel);
  }
  return out;
}

}  // namespace heddle
