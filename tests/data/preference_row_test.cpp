// Preference pairs: what a row of a file becomes, and which of its tokens count.
#include "data/preference_row.h"

#include <gmock/gmock.h>

#include "data/row_parser.h"
#include "data_folder.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Row parse(std::string_view text, bool has_chat_template = true) {
  return parse_row({text, 7}, {30, {}, has_chat_template, true});
}

std::string error_of_row(std::string_view text) {
  try {
    parse(text);
  } catch (const RowError& error) {
    return error.what();
  }
  return "no error";
}

/// "u:hi|a:yes", the prompt before the bar.
std::string text_of(const std::optional<Conversation>& conversation) {
  if (!conversation) return "none";
  std::string text;
  for (std::size_t i = 0; i < conversation->messages.size(); ++i) {
    const Json& message = conversation->messages[i];
    if (i > 0) text += i == conversation->prompt_messages ? "|" : " ";
    text += message.at("role").get<std::string>().substr(0, 1) + ":" + message.at("content").get<std::string>();
  }
  return text;
}

TEST(PreferenceRow, APromptIsItsOwnFieldOrTheCommonBeginning) {
  const Row given = parse(R"({"prompt": "2+2=", "chosen": "4", "rejected": "5"})");
  EXPECT_EQ(given.format, RowFormat::preference);
  EXPECT_EQ(given.pair->prompt + "|" + given.pair->completion, "2+2=|4");
  EXPECT_EQ(given.rejected_pair->prompt + "|" + given.rejected_pair->completion, "2+2=|5");
  // As TRL's extract_prompt cuts: a space belongs to the answers; so does the last character that both have.
  const Row implicit = parse(R"({"chosen": "The sky is blue.", "rejected": "The sky is green."})");
  EXPECT_EQ(implicit.pair->prompt + "|" + implicit.pair->completion, "The sky is| blue.");
  EXPECT_EQ(implicit.rejected_pair->completion, " green.");
  EXPECT_EQ(parse(R"({"chosen": "ab", "rejected": "abc"})").pair->prompt, "a");
  EXPECT_EQ(parse("{\"chosen\": \"\xc3\xa9\", \"rejected\": \"\xc3\xa8\"}").pair->prompt, "");  // half a character
}

TEST(PreferenceRow, MessagesArePromptAndAnswer) {
  const Row given = parse(
      R"({"prompt": [{"role": "user", "content": "q"}], "chosen": [{"role": "assistant", "content": "y"}],
          "rejected": [{"role": "assistant", "content": "n"}]})");
  EXPECT_EQ(given.format, RowFormat::chat_preference);
  EXPECT_EQ(text_of(given.conversation) + " " + text_of(given.rejected_conversation), "u:q|a:y u:q|a:n");
  // Whole conversations in both, as UltraFeedback has them beside a text of the prompt.
  const Row whole = parse(
      R"({"prompt": "q", "chosen": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "y"}],
          "rejected": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "n"}]})");
  EXPECT_EQ(text_of(whole.conversation) + " " + text_of(whole.rejected_conversation), "u:q|a:y u:q|a:n");
  EXPECT_THAT(whole.ignored_fields, ElementsAre("prompt"));
  // LLaMA-Factory's: the answers are single messages behind a conversation.
  const Row sharegpt = parse(
      R"({"conversations": [{"from": "human", "value": "q"}], "chosen": {"from": "gpt", "value": "y"},
          "rejected": {"from": "gpt", "value": "n"}, "system": "s"})");
  EXPECT_EQ(text_of(sharegpt.conversation) + " " + text_of(sharegpt.rejected_conversation), "s:s u:q|a:y s:s u:q|a:n");
  const Row alpaca = parse(R"({"instruction": "q", "input": "i", "chosen": "y", "rejected": "n"})");
  EXPECT_EQ(text_of(alpaca.rejected_conversation), "u:q\ni|a:n");
  EXPECT_EQ(parse(R"({"instruction": "q", "chosen": "y", "rejected": "n"})", false).rejected_pair->completion, "n");
}

TEST(PreferenceRow, WhatIsNoPairIsRefused) {
  EXPECT_THAT(error_of_row(R"({"chosen": [{"role": "user", "content": "b"}], "rejected": []})"),
              HasSubstr("rejected is empty"));
  EXPECT_THAT(error_of_row(R"({"chosen": "a", "rejected": null})"), HasSubstr("rejected is null"));
  EXPECT_THAT(error_of_row(R"({"chosen": "a", "rejected": [{"role": "user", "content": "b"}]})"),
              HasSubstr("expected two texts, or two lists"));
  EXPECT_THAT(error_of_row(R"({"prompt": 3, "chosen": "a", "rejected": "b"})"), HasSubstr("prompt is 3"));
  EXPECT_THAT(error_of_row(R"({"chosen": [{"role": "user", "content": "a"}],
                               "rejected": [{"role": "user", "content": "b"}]})"),
              HasSubstr("no first message in common"));
  for (const char* row : {R"({"text": "a"})", R"({"input_ids": [1, 2]})", R"({"prompt": "a", "completion": "b"})"})
    EXPECT_THAT(error_of_row(row), HasSubstr("expected chosen and rejected")) << row;
}

class PreferenceData : public DataFolder {
 protected:
  void SetUp() override {
    DataFolder::SetUp();
    options_.preference = true;
  }
  MicroBatch batch(const Dataset& data) {
    MicroBatch batch;
    for (std::int64_t row = 0; row < data.num_rows(); ++row) data.append_row(row, batch);
    return batch;
  }
  static constexpr std::int32_t kEos = LetterTokenizer::kEos;
};

TEST_F(PreferenceData, APairIsARowOfTwoDocumentsTheChosenOneFirst) {
  const Dataset data = load(R"({"prompt": "ab", "chosen": "c", "rejected": "de"})");
  ASSERT_EQ(data.num_rows(), 1);
  EXPECT_EQ(data.num_examples(), 2);
  EXPECT_TRUE(data.has_pairs());
  EXPECT_FALSE(data.packed());
  const MicroBatch all = batch(data);
  EXPECT_THAT(all.input_ids, ElementsAre(1, 2, 3, 1, 2, 4, 5));
  EXPECT_THAT(all.labels, ElementsAre(-100, 3, kEos, -100, 4, 5, kEos));
  EXPECT_THAT(all.document_starts, ElementsAre(0, 3, 7));
  EXPECT_THAT(all.positions, ElementsAre(0, 1, 2, 0, 1, 2, 3));
  EXPECT_THAT(all.rows, ElementsAre(0));
  EXPECT_EQ(all.supervised_tokens, 5);
  EXPECT_EQ(data.row_supervised_tokens(0), 5);
}

TEST_F(PreferenceData, BothAnswersAreCutAtTheSameEnd) {
  const char* row = R"({"prompt": "abcdef", "chosen": "gh", "rejected": "ijkl"})";  // 9 and 11 ids with end-of-text
  options_.max_length = 8;
  EXPECT_THAT(batch(load(row)).input_ids, ElementsAre(1, 2, 3, 4, 5, 6, 7, 1, 2, 3, 4, 5, 6, 9));
  EXPECT_THAT(batch(load(row)).labels,
              ElementsAre(-100, -100, -100, -100, -100, 7, 8, -100, -100, -100, -100, -100, 9, 10));
  options_.keeps_end = true;
  EXPECT_THAT(batch(load(row)).input_ids, ElementsAre(2, 3, 4, 5, 6, 7, 8, 4, 5, 6, 9, 10, 11, 12));
  options_.keeps_end = false;
  options_.max_prompt_length = 2;
  EXPECT_THAT(batch(load(row)).input_ids, ElementsAre(5, 6, 7, 8, 5, 6, 9, 10, 11, 12));
  options_.max_length = 4;
  EXPECT_THAT(batch(load(row)).labels, ElementsAre(-100, 7, 8, -100, 9, 10));
}

TEST_F(PreferenceData, APairWithoutTargetsIsDroppedByNameAsAWhole) {
  const std::string rows =
      "{\"prompt\": \"abcdefgh\", \"chosen\": \"c\", \"rejected\": \"d\"}\n"
      "{\"prompt\": \"ab\", \"chosen\": \"c\", \"rejected\": \"d\"}\n";
  testing::internal::CaptureStderr();
  const Dataset data = load(rows);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), AllOf(HasSubstr("1 row is dropped"), HasSubstr("rows.jsonl:1")));
  ASSERT_EQ(data.num_rows(), 1);
  EXPECT_EQ(data.source(0).substr(data.source(0).rfind(':')), ":2");
}

TEST_F(PreferenceData, RowsAndLossMustBelongTogether) {
  EXPECT_THAT(error_of("{\"text\": \"ab\"}"), HasSubstr("rows.jsonl:1: no preference pair"));
  EXPECT_THAT(error_of("ab", "text.txt"), HasSubstr("text.txt:1: plain text"));
  options_.preference = false;
  EXPECT_THAT(error_of(R"({"prompt": "ab", "chosen": "c", "rejected": "de"})"),
              AllOf(HasSubstr("rows.jsonl:1: "), HasSubstr("expected loss_type: sigmoid (DPO)")));
}

TEST_F(PreferenceData, TheCacheKeepsPairs) {
  options_.cache_folder = folder_ / "cache";
  const char* row = R"({"prompt": "ab", "chosen": "c", "rejected": "de"})";
  const MicroBatch made = batch(load(row));
  const int encoded = tokenizer_.texts_encoded;
  const MicroBatch read = batch(load(row));
  EXPECT_EQ(read.input_ids, made.input_ids);
  EXPECT_EQ(read.labels, made.labels);
  EXPECT_LE(tokenizer_.texts_encoded - encoded, encoded - 1) << "tokenized again";
}

}  // namespace
}  // namespace heddle
