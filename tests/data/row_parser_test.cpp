#include "data/row_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Optional;

Row parse(std::string_view text, const ColumnNames& columns = {}, bool has_chat_template = true) {
  return parse_row({text, 7}, {30, columns, has_chat_template, false});
}

std::string error_of(std::string_view text, const ColumnNames& columns = {}, bool has_chat_template = true) {
  try {
    parse(text, columns, has_chat_template);
  } catch (const RowError& error) {
    return fmt::format("{}: {}", error.line(), error.what());
  }
  return "no error";
}

TEST(RowParser, ReadsATextOrIdsWithLabels) {
  EXPECT_THAT(parse(R"({"text": "h\u00e9 \ud83d\ude00\n"})").text,
              Optional(std::string("h\xc3\xa9 \xf0\x9f\x98\x80\n")));
  const Row row = parse(R"( {"labels": [-100, 0, 29], "input_ids": [3, 0, 29]} )");
  EXPECT_THAT(row.input_ids, Optional(ElementsAre(3, 0, 29)));
  EXPECT_THAT(row.labels, Optional(ElementsAre(-100, 0, 29)));
  EXPECT_FALSE(row.text);
  EXPECT_THAT(parse(R"({"input_ids": []})").input_ids, Optional(ElementsAre()));
}

TEST(RowParser, OtherFieldsOfAnyShapeArePassedOverAndNamed) {
  const Row row = parse(R"({"id": 1.5e300, "meta": {"text": ["x", null, {"input_ids": 3}]}, "text": "a", "ok": true})");
  EXPECT_THAT(row.text, Optional(std::string("a")));
  EXPECT_THAT(row.ignored_fields, ElementsAre("id", "meta", "ok"));
}

TEST(RowParser, IdsMustBeWholeAndInTheVocabulary) {
  EXPECT_EQ(error_of(R"({"input_ids": [1, 30]})"),
            "7: input_ids[1] is 30; expected a whole number from 0 to 29 (vocab_size - 1)");
  EXPECT_THAT(error_of(R"({"input_ids": [-2]})"), HasSubstr("input_ids[0] is -2;"));
  EXPECT_THAT(error_of(R"({"input_ids": [-100]})"), HasSubstr("input_ids[0] is -100;"));
  EXPECT_THAT(error_of(R"({"input_ids": [18446744073709551617]})"), HasSubstr("is 18446744073709551617;"));
  EXPECT_THAT(error_of(R"({"input_ids": [18446744073709551615]})"), HasSubstr("is 18446744073709551615;"));
  EXPECT_THAT(error_of(R"({"input_ids": [4294967297]})"), HasSubstr("is 4294967297;"));
  EXPECT_THAT(error_of(R"({"input_ids": [2.5]})"), HasSubstr("is 2.5;"));
  EXPECT_THAT(error_of(R"({"input_ids": [2.0]})"), HasSubstr("is 2.0;"));
  EXPECT_THAT(error_of(R"({"input_ids": ["2"]})"), HasSubstr("is \"2\";"));
  EXPECT_THAT(error_of(R"({"input_ids": [null]})"), HasSubstr("is null;"));
  EXPECT_THAT(error_of(R"({"input_ids": [true]})"), HasSubstr("is true;"));
  EXPECT_THAT(error_of(R"({"input_ids": [[1]]})"), HasSubstr("input_ids[0] is a list;"));
  EXPECT_THAT(error_of(R"({"input_ids": [1, {"a": 1}]})"), HasSubstr("input_ids[1] is an object;"));
  EXPECT_THAT(error_of(R"({"input_ids": [1, 2], "labels": [1, -1]})"),
              HasSubstr("labels[1] is -1; expected -100 or a whole"));
  EXPECT_THAT(error_of(R"({"input_ids": [1, 2], "labels": [30, 1]})"), HasSubstr("labels[0] is 30;"));
  EXPECT_THAT(error_of(R"({"input_ids": [1, 2], "labels": [1]})"), HasSubstr("1 labels for 2 input_ids"));
}

TEST(RowParser, FieldsOfTheWrongTypeAreNamed) {
  EXPECT_EQ(error_of(R"({"text": null})"), "7: text is null; expected a string");
  EXPECT_EQ(error_of(R"({"text": 17})"), "7: text is 17; expected a string");
  EXPECT_EQ(error_of(R"({"text": ["a"]})"), "7: text is a list; expected a string");
  EXPECT_EQ(error_of(R"({"input_ids": "1 2"})"), "7: input_ids is \"1 2\"; expected a list of whole numbers");
  EXPECT_EQ(error_of(R"({"input_ids": 3})"), "7: input_ids is 3; expected a list of whole numbers");
  EXPECT_EQ(error_of(R"({"input_ids": {"a": 1}})"), "7: input_ids is an object; expected a list of whole numbers");
}

TEST(RowParser, RowsWithoutAKnownFieldSayWhatTheyHave) {
  EXPECT_EQ(error_of(R"({"txet": "a"})"),
            "7: no field to train on, found txet; expected text, input_ids, messages, conversations, prompt and "
            "completion, or instruction and output; did you mean text?");
  EXPECT_THAT(error_of("{}"), HasSubstr("the row is empty"));
  EXPECT_THAT(error_of(R"({"labels": [1]})"), HasSubstr("found labels"));
  EXPECT_THAT(error_of(R"({"text": "a", "input_ids": [1]})"), HasSubstr("both text and input_ids"));
  EXPECT_THAT(error_of(R"({"text": "a", "labels": [1]})"), HasSubstr("labels without input_ids"));
}

TEST(RowParser, FieldsThatOtherDataSetsUseAreNamedWithTheColumnsThatWouldReadThem) {
  EXPECT_THAT(error_of(R"({"question": "a", "answer": "b"})"),
              HasSubstr("; columns: {prompt: question, completion: answer} would name them"));
  EXPECT_THAT(error_of(R"({"instruction": "a", "response": "b"})"),
              HasSubstr("; columns: {output: response} would name it"));
  EXPECT_THAT(error_of(R"({"conversation": []})"), HasSubstr("; columns: {messages: conversation} would name it"));
  EXPECT_THAT(error_of(R"({"body": "a"})"), HasSubstr("; columns: {text: body} would name it"));
}

TEST(RowParser, FormatsAreRecognisedByTheirFields) {
  EXPECT_EQ(parse(R"({"text": "a"})").format, RowFormat::text);
  EXPECT_EQ(parse(R"({"input_ids": [1]})").format, RowFormat::input_ids);
  EXPECT_EQ(parse(R"({"messages": [{"role": "user", "content": "a"}]})").format, RowFormat::messages);
  EXPECT_EQ(parse(R"({"conversations": [{"role": "user", "content": "a"}]})").format, RowFormat::messages);
  EXPECT_EQ(parse(R"({"conversations": [{"from": "human", "value": "a"}]})").format, RowFormat::sharegpt);
  EXPECT_EQ(parse(R"({"messages": [{"from": "human", "value": "a"}]})").format, RowFormat::sharegpt);
  EXPECT_EQ(parse(R"({"instruction": "a", "output": "b"})").format, RowFormat::alpaca);
  EXPECT_EQ(parse(R"({"prompt": "a", "completion": "b"})").format, RowFormat::pair);
  EXPECT_EQ(
      parse(R"({"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]})")
          .format,
      RowFormat::chat_pair);
  EXPECT_THAT(error_of(R"({"prompt": "a", "completion": [{"role": "assistant", "content": "b"}]})"),
              HasSubstr("expected two strings, or two lists of messages"));
}

TEST(RowParser, TheMostSpecificFormatIsTakenUnlessAColumnSaysOtherwise) {
  const std::string row = R"({"instruction": "a", "output": "b", "text": "rendered", "id": 3})";
  EXPECT_EQ(parse(row).format, RowFormat::alpaca);
  EXPECT_THAT(parse(row).ignored_fields, ElementsAre("text", "id"));
  EXPECT_EQ(parse(row, {{"text", "text"}}).text, "rendered");
  EXPECT_THAT(parse(row, {{"text", "text"}}).ignored_fields, ElementsAre("instruction", "output", "id"));
}

TEST(RowParser, ColumnsRenameFieldsOfTheFile) {
  const Row row =
      parse(R"({"chat": [{"role": "user", "content": "a"}], "messages": 3, "text": null})", {{"messages", "chat"}});
  EXPECT_EQ(row.conversation->messages.dump(), R"([{"role":"user","content":"a"}])");
  EXPECT_THAT(row.ignored_fields, ElementsAre("messages", "text"));
  EXPECT_EQ(parse(R"({"q": "a", "a": "b"})", {{"prompt", "q"}, {"completion", "a"}}).pair->completion, "b");
  EXPECT_EQ(error_of(R"({"body": 1})", {{"text", "body"}}), "7: text is 1; expected a string (columns: text is body)");
  EXPECT_THAT(error_of(R"({"messages": []})", {{"messages", "chat"}}),
              testing::EndsWith("; it has no chat (columns: messages is chat)"));
  EXPECT_THROW(check_columns({{"mesages", "chat"}}), Error);
  EXPECT_THROW(check_columns({{"prompt", "a"}, {"completion", "a"}}), Error);
}

TEST(RowParser, MessagesAreKeptAsTheyAreButForTheirWeights) {
  const Row row = parse(
      R"({"messages": [{"role": "user", "content": "a", "name": "n"}, {"role": "assistant", "content": null, "weight": 0,
          "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": {}}}]},
          {"role": "assistant", "content": "b", "train": true}],
          "tools": [{"type": "function", "function": {"name": "f"}}], "chat_template_kwargs": {"thinking": true}})");
  const auto& conversation = *row.conversation;
  EXPECT_EQ(conversation.messages.dump(),
            R"([{"role":"user","content":"a","name":"n"},{"role":"assistant","content":null,)"
            R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":{}}}]},)"
            R"({"role":"assistant","content":"b"}])");
  EXPECT_THAT(conversation.weights, ElementsAre(std::nullopt, Optional(false), Optional(true)));
  EXPECT_EQ(conversation.tools.dump(), R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(conversation.variables.dump(), R"({"thinking":true})");
}

TEST(RowParser, FaultsOfMessagesAreNamedByTheirPlace) {
  EXPECT_EQ(error_of(R"({"messages": []})"), "7: messages is empty; expected at least one message");
  EXPECT_EQ(error_of(R"({"messages": null})"), "7: messages is null; expected a list of messages");
  EXPECT_EQ(error_of(R"({"messages": "hi"})"), "7: messages is \"hi\"; expected a list of messages");
  EXPECT_THAT(error_of(R"({"messages": [3]})"), HasSubstr("messages[0] is 3; expected an object"));
  EXPECT_EQ(error_of(R"({"messages": [{"content": "a"}]})"), "7: messages[0] has no role");
  EXPECT_EQ(error_of(R"({"messages": [{"role": "user"}]})"), "7: messages[0] has no content");
  EXPECT_THAT(error_of(R"({"messages": [{"role": 3, "content": "a"}]})"), HasSubstr("messages[0].role is 3;"));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "user", "content": 3}]})"), HasSubstr("messages[0].content is 3;"));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]})"),
              HasSubstr("expected text alone"));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "user", "content": "a", "weight": 0.5}]})"),
              HasSubstr("messages[0].weight is 0.5; expected 0, 1, false or true"));
  EXPECT_THAT(error_of(R"({"conversations": [{"from": "martian", "value": "a"}]})"),
              HasSubstr("conversations[0].from is martian; expected human, gpt,"));
}

TEST(RowParser, ShareGptBecomesMessagesWithCallsAndTools) {
  const Row row = parse(
      R"({"system": "be kind", "conversations": [{"from": "human", "value": "a"},
          {"from": "function_call", "value": "{\"name\": \"f\", \"arguments\": {\"x\": 1}}"},
          {"from": "observation", "value": "3"}, {"from": "gpt", "value": "b"}],
          "tools": "[{\"name\": \"f\", \"parameters\": {}}]"})");
  EXPECT_EQ(
      row.conversation->messages.dump(),
      R"([{"role":"system","content":"be kind"},{"role":"user","content":"a"},)"
      R"({"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"x":1}}}]},)"
      R"({"role":"tool","content":"3"},{"role":"assistant","content":"b"}])");
  EXPECT_EQ(row.conversation->tools.dump(), R"([{"type":"function","function":{"name":"f","parameters":{}}}])");
  EXPECT_EQ(parse(R"({"conversations": [{"from": "human", "value": "a"}], "tools": ""})").conversation->tools, nullptr);
}

TEST(RowParser, ContentInPartsWithValuesIsJoined) {
  const Row row = parse(
      R"({"messages": [{"role": "user", "content": [{"type": "text", "value": "a"}, {"type": "text", "value": "b"}], "loss_weight": 0.0},
          {"role": "assistant", "content": [{"type": "reasoning", "value": "r"}, {"type": "text", "value": "c"}], "loss_weight": 1.0}]})");
  EXPECT_EQ(row.conversation->messages.dump(),
            R"([{"role":"user","content":"ab"},{"role":"assistant","content":"c","reasoning_content":"r"}])");
  EXPECT_THAT(row.conversation->weights, ElementsAre(Optional(false), Optional(true)));
}

TEST(RowParser, AlpacaIsAPromptAndCompletionOfMessages) {
  const Row row = parse(R"({"instruction": "i", "input": "j", "output": "o", "system": "s", "history": [["a", "b"]]})");
  EXPECT_EQ(row.conversation->messages.dump(),
            R"([{"role":"system","content":"s"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},)"
            R"({"role":"user","content":"i\nj"},{"role":"assistant","content":"o"}])");
  EXPECT_EQ(row.conversation->prompt_messages, 4u);
}

// The texts of the data set that its authors published, field `text`.
TEST(RowParser, AlpacaWithoutATemplateIsTheTextItsAuthorsTrainedOn) {
  const Row bare = parse(R"({"instruction": "Say hi.", "input": "", "output": "hi"})", {}, false);
  EXPECT_EQ(bare.pair->prompt,
            "Below is an instruction that describes a task. Write a response that appropriately completes the "
            "request.\n\n### Instruction:\nSay hi.\n\n### Response:\n");
  EXPECT_EQ(bare.pair->completion, "hi");
  const Row with_input = parse(R"({"instruction": "Add.", "input": "1 2", "output": "3"})", {}, false);
  EXPECT_EQ(with_input.pair->prompt,
            "Below is an instruction that describes a task, paired with an input that provides further context. Write "
            "a response that appropriately completes the request.\n\n### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### "
            "Response:\n");
  EXPECT_THAT(error_of(R"({"instruction": "a", "output": "b", "history": []})", {}, false),
              HasSubstr("history needs a chat template"));
}

TEST(RowParser, PreferencesAreKnownAndRefusedByName) {
  EXPECT_THAT(error_of(R"({"prompt": "a", "chosen": "b", "rejected": "c"})"),
              HasSubstr("a preference pair (chosen, rejected), and loss_type is nll"));
  EXPECT_THAT(error_of(R"({"chosen": [{"role": "user", "content": "b"}], "rejected": []})"),
              HasSubstr("rejected is empty"));
  EXPECT_THAT(error_of(R"({"messages": [{"role": "user", "content": "a"}], "label": true})"), HasSubstr("(KTO)"));
  EXPECT_EQ(
      parse(R"({"messages": [{"role": "user", "content": "a"}], "label": true})", {{"messages", "messages"}}).format,
      RowFormat::messages);
  EXPECT_EQ(parse(R"({"messages": [{"role": "user", "content": "a"}], "label": "spam"})").format, RowFormat::messages);
}

TEST(RowParser, OnlyStrictJsonIsRead) {
  for (const char* text : {"", "{", "{\"text\": \"a\"", "{\"text\": \"a\",}", "{\"text\": 'a'}", "{\"text\": \"a\"} x",
                           "{\"text\": NaN}", "{\"input_ids\": [1 2]}", "{\"text\": \"a\nb\"}", "{\"input_ids\": [01]}",
                           "// c\n{}", "{\"a\": 1e999, \"text\": \"\"}"}) {
    EXPECT_THAT(error_of(text), HasSubstr(": not valid JSON")) << text;
  }
  EXPECT_THAT(error_of(R"({"text": "a\ud800b"})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(R"({"text": "\udc00"})"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of(std::string_view("{\"text\": \"a\"}\0 x", 16)), HasSubstr("zero byte"));
  EXPECT_EQ(error_of("[1, 2, 3]"), "7: a row is a list; expected an object");
  EXPECT_EQ(error_of("17"), "7: a row is 17; expected an object");
  EXPECT_EQ(error_of("\"a\""), "7: a row is \"a\"; expected an object");
  EXPECT_EQ(error_of(R"({"text": "a", "text": "b"})"), "7: duplicate key \"text\"");
  EXPECT_EQ(error_of(R"({"text": "a", "meta": {"x": 1, "x": 2}})"), "7: duplicate key \"x\"");
  EXPECT_EQ(error_of("{\"text\": \"a\xc3(b\"}"), "7: byte 0xC3 at column 12 is not valid UTF-8");
}

TEST(RowParser, DepthIsBounded) {
  const std::string deep = "{\"input_ids\": " + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_THAT(error_of(deep), HasSubstr("7: input_ids[0] is a list"));
  const std::string other = "{\"text\": \"a\", \"x\": " + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_THAT(error_of(other), HasSubstr("7: nested deeper than 64 levels"));
}

TEST(RowParser, ErrorsInARowOfSeveralLinesNameTheLineOfTheFault) {
  EXPECT_THAT(error_of("{\n\"text\":\n tru }"), testing::StartsWith("9: "));
  EXPECT_THAT(error_of("{\n\"text\": \"\xff\"}"), testing::StartsWith("8: byte 0xFF at column 10"));
}

TEST(RowParser, OutsideTextInMessagesIsShortAndPrintable) {
  const std::string error =
      error_of("{\"text\": \"a\", \"" + std::string(1000, 'k') + "\": 1, \"" + std::string(1000, 'k') + "\": 1}");
  EXPECT_LT(error.size(), 160u);
  EXPECT_EQ(error_of("{\"\\u001b[31m\\n\": 1}"),
            "7: no field to train on, found \\x1b[31m\\x0a; expected text, input_ids, messages, conversations, prompt "
            "and completion, or instruction and output");
}

struct Cut {
  std::string text;
  std::int64_t line;
  bool operator==(const Cut&) const = default;
};

std::vector<Cut> records_of(std::string_view content, DataFormat format) {
  RecordReader reader(content, format);
  std::vector<Cut> out;
  for (Record record; reader.next(record);) out.push_back({std::string(record.text), record.line});
  return out;
}

TEST(RowRecords, LinesThatAreNotBlank) {
  EXPECT_THAT(records_of("\xEF\xBB\xBF{a}\r\n\r\n \t\n{b}\n{c}", DataFormat::json_lines),
              ElementsAre(Cut{"{a}\r", 1}, Cut{"{b}", 4}, Cut{"{c}", 5}));
  EXPECT_THAT(records_of("\n\n", DataFormat::json_lines), ElementsAre());
}

TEST(RowRecords, ElementsOfAnArrayWithTheirLines) {
  EXPECT_THAT(records_of("\xEF\xBB\xBF\n[ {\"a\": \"],\\\"\"},\n\n {\"b\": [1, {}]}\n, 3] \n", DataFormat::json),
              ElementsAre(Cut{"{\"a\": \"],\\\"\"}", 2}, Cut{"{\"b\": [1, {}]}\n", 4}, Cut{"3", 5}));
  EXPECT_THAT(records_of("[ \n]", DataFormat::json), ElementsAre());
  EXPECT_THAT(records_of(" \n{\"text\": \"a\"}\n", DataFormat::json), ElementsAre(Cut{"{\"text\": \"a\"}", 2}));
  // JSON Lines under the name of .json, as Hugging Face's data sets take them, and objects that are not on lines.
  EXPECT_THAT(records_of("{\"a\": \"}\\\"\"}\r\n{\"b\":\n[{}]}\n\n{}{\"c\": 1}\n", DataFormat::json),
              ElementsAre(Cut{"{\"a\": \"}\\\"\"}", 1}, Cut{"{\"b\":\n[{}]}", 2}, Cut{"{}", 5}, Cut{"{\"c\": 1}", 5}));
  EXPECT_THAT(records_of("{\"a\": 1", DataFormat::json), ElementsAre(Cut{"{\"a\": 1", 1}));
  EXPECT_THAT(records_of(" \n", DataFormat::json), ElementsAre());
  // An element that is missing is a record for the parser to refuse.
  EXPECT_THAT(records_of("[1,]", DataFormat::json), ElementsAre(Cut{"1", 1}, Cut{"", 1}));
  for (const char* text : {"[1", "[", "[1,", "[\"a", "[1] 2", "[1]]", "3", "\"a\"", "[[1]"}) {
    EXPECT_THROW(records_of(text, DataFormat::json), RowError) << text;
  }
}

/// Records of a file that comes in windows as short as can be.
std::vector<std::string> records_in_windows(const std::string& content, DataFormat format, std::size_t step) {
  std::vector<std::string> found;
  RecordReader reader(format);
  std::string window;
  std::size_t at = 0;
  try {
    for (;;) {
      Record record;
      while (reader.next(record)) found.push_back(std::to_string(record.line) + ":" + std::string(record.text));
      if (at == content.size() && at > 0) break;
      window.erase(0, reader.used());
      window += content.substr(at, step);
      at = std::min(at + step, content.size());
      reader.feed(window, at == content.size());
    }
  } catch (const RowError& error) {
    found.push_back(std::to_string(error.line()) + "! " + error.what());
  }
  return found;
}

TEST(RowRecords, AreTheSameHoweverTheFileIsCutIntoWindows) {
  const std::vector<std::pair<DataFormat, std::string>> files = {
      {DataFormat::json_lines, "\xEF\xBB\xBF{\"a\": 1}\n\n  \r\n{\"b\": 2}\r\nlast"},
      {DataFormat::json_lines, "{}\n"},
      {DataFormat::json, "\xEF\xBB\xBF \n[ {\"a\": \"x,]\\\"\"},\n\n {\"b\": [1,\n2]} \n]\n "},
      {DataFormat::json, " [ ] "},
      {DataFormat::json, "[1, 2] x"},
      {DataFormat::json, "[1,\n2"},
      {DataFormat::json, "[1,\n\"2\\"},
      {DataFormat::json, "\n {\"a\":\n 1}\n"},
      {DataFormat::json, "{\"a\": \"}\\\"\"}\n\n {\"b\": [1,\n{}]} {}\n"},
      {DataFormat::json, "{\"a\": 1}, {}"},
      {DataFormat::json, "{\"a\": [1, {"},
      {DataFormat::json, "\n 5"},
      {DataFormat::json, " \n "},
  };
  for (const auto& [format, content] : files) {
    const auto whole = records_in_windows(content, format, content.size());
    EXPECT_FALSE(whole.empty() && content.find_first_not_of(" \n[]") != std::string::npos) << content;
    for (std::size_t step = 1; step < content.size(); ++step) {
      EXPECT_EQ(records_in_windows(content, format, step), whole) << content << " by " << step;
    }
  }
}

TEST(RowRecords, Utf8ByTheStandardsTable) {
  for (const char* good : {"", "a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(find_invalid_utf8(good), std::nullopt);
  }
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xC2", "\xC2(", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE1\x80", "\xE1\x80(",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xF1\x80\x80", "\xFF"}) {
    EXPECT_EQ(find_invalid_utf8(std::string("ab") + bad + ""), 2u);
  }
}

TEST(RowRecords, FormatsGoByExtension) {
  EXPECT_EQ(data_format("a/b.jsonl"), DataFormat::json_lines);
  EXPECT_EQ(data_format("b.JSONL"), DataFormat::json_lines);
  EXPECT_EQ(data_format("b.json"), DataFormat::json);
  EXPECT_EQ(data_format("b.txt"), DataFormat::plain_text);
  EXPECT_EQ(data_format("b"), DataFormat::plain_text);
  EXPECT_EQ(data_format("b.jsonl.gz"), DataFormat::json_lines);
  EXPECT_EQ(data_format("b.json.zst"), DataFormat::json);
  EXPECT_EQ(data_format("b.txt.gz"), DataFormat::plain_text);
  EXPECT_EQ(data_format("b.parquet"), DataFormat::parquet);
  for (const char* path : {"b.parquet.gz", "b.jsonl.xz", "b.jsonl.gz.zst", "b.gguf"}) {
    EXPECT_THROW(data_format(path), Error) << path;
  }
}

}  // namespace
}  // namespace heddle
