#include "data/conversation_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/row_parser.h"
#include "tokenizer_json.h"

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// '<' opens, '>' ends a turn, '^' is BOS: special tokens of one letter. Every other letter is a token, but for "ab",
// which is one where both letters meet.
class TurnTokenizer : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text, bool) const override {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool is_pair = text.substr(i, 2) == "ab";
      ids.push_back(is_pair ? 300 : static_cast<unsigned char>(text[i]));
      i += is_pair ? 1 : 0;
    }
    return ids;
  }
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const override {
    std::string text;
    for (const std::int32_t id : ids) {
      const bool is_special = id == '<' || id == '>' || id == '^';
      if (!is_special || !skip_special_tokens) text += id_to_token(id);
    }
    return text;
  }
  std::int32_t vocab_size() const override { return 301; }
  std::optional<std::int32_t> token_to_id(std::string_view) const override { return std::nullopt; }
  std::string id_to_token(std::int32_t id) const override {
    return id == 300 ? "ab" : std::string(1, static_cast<char>(id));
  }
  std::optional<std::int32_t> bos_id() const override { return '^'; }
  std::optional<std::int32_t> eos_id() const override { return '>'; }  // also what pads, if anything did
  std::optional<bool> add_bos_token() const override { return std::nullopt; }
  std::optional<bool> add_eos_token() const override { return std::nullopt; }
  std::string fingerprint() const override { return "turns"; }
};

constexpr const char* kTurns =
    "{% for m in messages %}<{{ m.role[0] }}:{{ m.content }}>\n{% endfor %}{% if add_generation_prompt %}<a:{% endif "
    "%}";
constexpr const char* kMarked =
    "{% for m in messages %}<{{ m.role[0] }}:{% if m.role == 'assistant' %}{% generation %}{{ m.content }}>"
    "{% endgeneration %}{% else %}{{ m.content }}>{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<a:{% endif %}";
// As Qwen3's: a thought is rendered in the last turn alone.
constexpr const char* kForgetful =
    "{% for m in messages %}<{{ m.role[0] }}:{% if loop.last and m.role == 'assistant' %}(thought){% endif %}{{ "
    "m.content }}>\n{% endfor %}"
    "{% if add_generation_prompt %}<a:{% endif %}";

class ConversationEncoderTest : public testing::Test {
 protected:
  /// The row's tokens, targets in brackets.
  std::string labelled(std::string_view row, const char* source = kTurns) {
    const ChatTemplate chat_template(source, "test", Json::object());
    const RowEncoder encoder(tokenizer_, add_bos_, std::nullopt);
    const ConversationEncoder conversations(encoder, &chat_template, rules_);
    const Row parsed = parse_row({row, 1}, {301, {}, true});
    const LabelledIds out =
        parsed.pair ? conversations.encode(*parsed.pair) : conversations.encode(*parsed.conversation);
    std::string text;
    bool is_open = false;
    for (std::size_t i = 0; i < out.ids.size(); ++i) {
      const bool is_target = out.labels.empty() || out.labels[i] != -100;
      EXPECT_TRUE(!is_target || out.labels.empty() || out.labels[i] == out.ids[i]);
      if (is_target != is_open) text += is_target ? "[" : "]";
      is_open = is_target;
      text += tokenizer_.id_to_token(out.ids[i]);
    }
    return is_open ? text + "]" : text;
  }
  std::string error_of(std::string_view row, const char* source) {
    try {
      labelled(row, source);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  TurnTokenizer tokenizer_;
  LabelRules rules_;
  std::optional<bool> add_bos_;
};

constexpr const char* kTalk =
    R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "xy"},
                     {"role": "user", "content": "r"}, {"role": "assistant", "content": ""}]})";

TEST_F(ConversationEncoderTest, WithoutARuleEveryTokenIsATarget) {
  EXPECT_EQ(labelled(kTalk), "[<u:q>\n<a:xy>\n<u:r>\n<a:>\n]");
}

TEST_F(ConversationEncoderTest, AssistantTurnsReachFromTheGenerationPromptToTheTerminator) {
  rules_.assistant_only = true;
  EXPECT_EQ(labelled(kTalk), "<u:q>\n<a:[xy>\n]<u:r>\n<a:[>\n]");
  EXPECT_EQ(labelled(kTalk, kMarked), "<u:q>\n<a:[xy>]\n<u:r>\n<a:[>]\n");
}

TEST_F(ConversationEncoderTest, TrainingOnTheLastTurnImpliesTheAssistantAlone) {
  rules_.last_only = true;
  EXPECT_EQ(labelled(kTalk), "<u:q>\n<a:xy>\n<u:r>\n<a:[>\n]");
  EXPECT_EQ(labelled(kTalk, kMarked), "<u:q>\n<a:xy>\n<u:r>\n<a:[>]\n");
}

TEST_F(ConversationEncoderTest, TerminatorsWrittenInMessagesAreTheirText) {
  rules_.assistant_only = true;
  const char* row =
      R"({"messages": [{"role": "user", "content": ">\n<a:no>"}, {"role": "assistant", "content": "y>\nz\n"}]})";
  EXPECT_EQ(labelled(row), "<u:>\n<a:no>>\n<a:[y>\nz\n>\n]");
}

TEST_F(ConversationEncoderTest, WithoutASpecialTerminatorTheLineEndIsLearned) {
  rules_.assistant_only = true;
  const char* plain =
      "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% "
      "endif %}";
  EXPECT_EQ(labelled(kTalk, plain), "user: q\nassistant: [xy\n]user: r\nassistant: [\n]");
}

TEST_F(ConversationEncoderTest, ATokenThatATurnSharesWithItsPromptIsATarget) {
  rules_.assistant_only = true;
  const char* joined =
      "{% for m in messages %}{{ m.role[0] }}{{ m.content }}>{% endfor %}{% if add_generation_prompt %}a{% endif %}";
  const char* row = R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "bc"}]})";
  EXPECT_EQ(labelled(row, joined), "uq>[abc>]");
  EXPECT_EQ(labelled(R"({"prompt": "xa", "completion": "bc"})"), "x[abc>]");
}

TEST_F(ConversationEncoderTest, TemplatesThatChangeEarlierTurnsAreRefusedWhereThatMatters) {
  rules_.assistant_only = true;
  EXPECT_THAT(error_of(kTalk, kForgetful), HasSubstr("otherwise once others follow"));
  rules_.last_only = true;
  EXPECT_EQ(labelled(kTalk, kForgetful), "<u:q>\n<a:xy>\n<u:r>\n<a:[(thought)>\n]");
  const std::string questions = std::string("{% if messages[-1].role == 'assistant' %}answered {% endif %}") + kTurns;
  EXPECT_THAT(error_of(kTalk, questions.c_str()), HasSubstr("otherwise once others follow"));
}

// As DeepSeek R1's: the generation prompt opens a thought that a finished turn does not have.
TEST_F(ConversationEncoderTest, AGenerationPromptThatAsksForMoreCountsAsFarAsItIsRendered) {
  rules_.assistant_only = true;
  const char* thinking =
      "{% for m in messages %}<{{ m.role[0] }}:{{ m.content }}>\n{% endfor %}{% if add_generation_prompt "
      "%}<a:(think){% endif %}";
  EXPECT_EQ(labelled(kTalk, thinking), "<u:q>\n<a:[xy>\n]<u:r>\n<a:[>\n]");
}

// As the first template of Llama 3, whose text always ends with a generation prompt.
TEST_F(ConversationEncoderTest, AGenerationPromptThatStandsBehindAnAnswerIsNoPartOfIt) {
  rules_.assistant_only = true;
  const char* always = "{% for m in messages %}<{{ m.role[0] }}:{{ m.content | trim }}>{% endfor %}<a:";
  EXPECT_EQ(labelled(kTalk, always), "<u:q><a:[xy>]<u:r><a:[>]<a:");
  const char* row =
      R"({"messages": [{"role": "user", "content": "q", "weight": 1}, {"role": "assistant", "content": " x>y "},
                       {"role": "user", "content": "r", "weight": 1}, {"role": "assistant", "content": "z"}]})";
  EXPECT_EQ(labelled(row, always), "[<u:q><a:x>y><u:r><a:z>]<a:");
  rules_.last_only = true;
  EXPECT_EQ(labelled(kTalk, always), "<u:q><a:xy><u:r><a:[>]<a:");
}

TEST_F(ConversationEncoderTest, WhereNothingCanBeRenderedBeforeATurnItsContentBeginsIt) {
  rules_.assistant_only = true;
  const std::string needs_user =
      std::string(
          "{% if not messages or messages[-1].role == 'system' %}{{ raise_exception('no question') }}{% endif %}") +
      kTurns;
  EXPECT_EQ(labelled(R"({"messages": [{"role": "system", "content": "s"}, {"role": "assistant", "content": "xy"}]})",
                     needs_user.c_str()),
            "<s:s>\n<a:[xy>\n]");
}

TEST_F(ConversationEncoderTest, AMessagesWeightDecides) {
  const char* row =
      R"({"messages": [{"role": "user", "content": "q", "weight": 1}, {"role": "assistant", "content": "x", "weight": 0},
                       {"role": "user", "content": "r"}, {"role": "assistant", "content": "y"}]})";
  for (const char* source : {kTurns, kMarked}) {
    rules_.assistant_only = source == kMarked;
    EXPECT_EQ(labelled(row, source),
              source == kMarked ? "[<u:q>\n]<a:x>\n<u:r>\n<a:[y>]\n" : "[<u:q>\n]<a:x>\n<u:r>\n<a:[y>\n]");
  }
}

TEST_F(ConversationEncoderTest, OfPromptsAndCompletionsTheCompletionIsTheTarget) {
  const char* row =
      R"({"prompt": [{"role": "user", "content": "q"}], "completion": [{"role": "assistant", "content": "y"}]})";
  EXPECT_EQ(labelled(row), "<u:q>\n<a:[y>\n]");
  EXPECT_EQ(labelled(R"({"prompt": "12", "completion": "34"})"), "12[34>]");
  EXPECT_EQ(labelled(R"({"prompt": "", "completion": "34>"})"), "[34>]");
  EXPECT_EQ(labelled(R"({"instruction": "q", "output": "y"})"), "<u:q>\n<a:[y>\n]");
  rules_.assistant_only = true;
  EXPECT_EQ(labelled(row), "<u:q>\n<a:[y>\n]");
  rules_ = {};
  rules_.completion_only = false;
  EXPECT_EQ(labelled(row), "[<u:q>\n<a:y>\n]");
  EXPECT_EQ(labelled(R"({"prompt": "12", "completion": "34"})"), "[1234>]");
}

TEST_F(ConversationEncoderTest, ThereIsOneBosWhoeverWritesIt) {
  const std::string with_bos = std::string("^") + kTurns;
  const char* row = R"({"messages": [{"role": "user", "content": "q"}]})";
  EXPECT_EQ(labelled(row, with_bos.c_str()), "[^<u:q>\n]");
  add_bos_ = true;
  EXPECT_EQ(labelled(row, with_bos.c_str()), "[^<u:q>\n]");
  EXPECT_EQ(labelled(row), "[^<u:q>\n]");
  rules_.assistant_only = true;
  EXPECT_EQ(labelled(kTalk), "^<u:q>\n<a:[xy>\n]<u:r>\n<a:[>\n]");
}

TEST_F(ConversationEncoderTest, WithoutATemplateConversationsAreRefused) {
  const RowEncoder encoder(tokenizer_, std::nullopt, std::nullopt);
  const ConversationEncoder conversations(encoder, nullptr, {});
  EXPECT_THROW(conversations.encode(*parse_row({kTalk, 1}, {301, {}, true}).conversation), Error);
}

}  // namespace
}  // namespace heddle
