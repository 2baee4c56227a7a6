#include "data/dataset.h"

#include <gmock/gmock.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/threads.h"
#include "data_folder.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class DatasetTest : public DataFolder {
 protected:
  MicroBatch row(const Dataset& data, std::int64_t index) const {
    MicroBatch batch;
    data.append_row(index, batch);
    return batch;
  }
  std::string notices(std::string_view content, const std::string& name = "rows.jsonl") {
    testing::internal::CaptureStderr();
    load(content, name);
    return testing::internal::GetCapturedStderr();
  }
  static constexpr std::int32_t kEos = LetterTokenizer::kEos, kBos = LetterTokenizer::kBos;
};

TEST_F(DatasetTest, ARowOfNTokensTakesNMinus1PositionsAndPredictsTheNext) {
  const Dataset data = load("{\"input_ids\": [5, 6, 7, 8]}\n");
  ASSERT_EQ(data.num_rows(), 1);
  const MicroBatch batch = row(data, 0);
  EXPECT_THAT(batch.input_ids, ElementsAre(5, 6, 7));
  EXPECT_THAT(batch.labels, ElementsAre(6, 7, 8));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2));
  EXPECT_THAT(batch.document_starts, ElementsAre(0, 3));
  EXPECT_EQ(batch.supervised_tokens, 3);
  EXPECT_EQ(data.row_tokens(0), 3);
  EXPECT_EQ(data.row_documents(0), 1);
  EXPECT_EQ(data.row_supervised_tokens(0), 3);
}

TEST_F(DatasetTest, LabelsAreShiftedAndTheFirstIsNeverUsed) {
  const Dataset data = load("{\"input_ids\": [5, 6, 7, 8], \"labels\": [1, -100, 2, 8]}");
  const MicroBatch batch = row(data, 0);
  EXPECT_THAT(batch.input_ids, ElementsAre(5, 6, 7));
  EXPECT_THAT(batch.labels, ElementsAre(-100, 2, 8));
  EXPECT_EQ(batch.supervised_tokens, 2);
  EXPECT_EQ(data.row_supervised_tokens(0), 2);
}

TEST_F(DatasetTest, RowsLieEndToEndInAMicroBatch) {
  const Dataset data = load("{\"input_ids\": [1, 2, 3]}\n{\"input_ids\": [4, 5], \"labels\": [-100, 5]}\n");
  MicroBatch batch;
  data.append_row(1, batch);
  data.append_row(0, batch);
  EXPECT_THAT(batch.input_ids, ElementsAre(4, 1, 2));
  EXPECT_THAT(batch.labels, ElementsAre(5, 2, 3));
  EXPECT_THAT(batch.positions, ElementsAre(0, 0, 1));
  EXPECT_THAT(batch.document_starts, ElementsAre(0, 1, 3));
  EXPECT_EQ(batch.supervised_tokens, 3);
}

TEST_F(DatasetTest, AKeyAboutLabelsThatConcernsNoRowIsRefused) {
  options_.labels.assistant_only = true;
  EXPECT_EQ(
      error_of("{\"text\": \"ab\"}\n{\"text\": \"cd\"}\n{\"input_ids\": [1, 2]}\n"),
      "assistant_only_loss is true, which is for conversations; rows.jsonl holds 2 rows of texts, 1 row of token ids");
  EXPECT_EQ(error_of("ab", "rows.txt"),
            "assistant_only_loss is true, which is for conversations; rows.txt holds 1 row of texts");
  options_.labels.last_only = true;
  EXPECT_THAT(error_of("{\"prompt\": \"ab\", \"completion\": \"cd\"}"),
              StartsWith("train_on is last, which is for conversations; rows.jsonl holds 1 row of prompts"));
  options_.labels = {};
  options_.labels.completion_only = true;
  EXPECT_THAT(error_of("{\"text\": \"ab\"}"),
              StartsWith("completion_only_loss is true, which is for prompts and completions; rows.jsonl holds"));
  EXPECT_EQ(load("{\"prompt\": \"ab\", \"completion\": \"cd\"}").num_rows(), 1);
  options_.labels.completion_only = false;
  EXPECT_EQ(load("{\"text\": \"ab\"}").num_rows(), 1);
}

TEST_F(DatasetTest, RowsThatAKeyAboutLabelsDoesNotConcernAreNamed) {
  options_.labels.completion_only = true;
  EXPECT_THAT(notices("{\"text\": \"ab\"}\n{\"prompt\": \"ab\", \"completion\": \"cd\"}"),
              HasSubstr("rows.jsonl: completion_only_loss changes nothing for 1 row of texts\n"));
}

TEST_F(DatasetTest, EndOfTextIsAppendedToTexts) {
  EXPECT_THAT(load("{\"text\": \"abc\"}").example(0).input_ids, ElementsAre(1, 2, 3, kEos));
  options_.add_eos = false;
  EXPECT_THAT(load("{\"text\": \"abc\"}").example(0).input_ids, ElementsAre(1, 2, 3));
  options_.add_eos = std::nullopt;
  tokenizer_.has_eos = false;
  EXPECT_THAT(load("{\"text\": \"abc\"}").example(0).input_ids, ElementsAre(1, 2, 3));
}

TEST_F(DatasetTest, SpecialTokensAreThoseOfThePostProcessorAndNeverDoubled) {
  tokenizer_.post_processor_adds_bos = tokenizer_.post_processor_adds_eos = true;
  EXPECT_THAT(load("{\"text\": \"ab\"}").example(0).input_ids, ElementsAre(kBos, 1, 2, kEos));
  EXPECT_THAT(load("{\"text\": \"^ab$\"}").example(0).input_ids, ElementsAre(kBos, 1, 2, kEos));
  EXPECT_THAT(load("{\"text\": \"\"}").example(0).input_ids, ElementsAre(kBos, kEos));
  options_.add_bos = false;
  EXPECT_THAT(load("{\"text\": \"ab\"}").example(0).input_ids, ElementsAre(1, 2, kEos));
  options_.add_eos = false;
  EXPECT_THAT(load("{\"text\": \"ab\"}").example(0).input_ids, ElementsAre(1, 2));
  tokenizer_.post_processor_adds_bos = tokenizer_.post_processor_adds_eos = false;
  options_.add_bos = options_.add_eos = true;
  EXPECT_THAT(load("{\"text\": \"ab\"}").example(0).input_ids, ElementsAre(kBos, 1, 2, kEos));
  EXPECT_THAT(load("{\"text\": \"^ab$\"}").example(0).input_ids, ElementsAre(kBos, 1, 2, kEos));
  tokenizer_.has_bos = false;
  EXPECT_THAT(error_of("{\"text\": \"ab\"}"), HasSubstr("add_bos"));
}

TEST_F(DatasetTest, BosIsAsTheTokenizerSaysUnlessTheRunSaysOtherwise) {
  tokenizer_.says_add_bos = true;
  EXPECT_THAT(load("{\"text\": \"ab\"}").example(0).input_ids, ElementsAre(kBos, 1, 2, kEos));
  options_.add_bos = false;
  EXPECT_THAT(load("{\"text\": \"ab\"}").example(0).input_ids, ElementsAre(1, 2, kEos));
  options_.add_bos = std::nullopt;
  tokenizer_.says_add_bos = false;
  tokenizer_.post_processor_adds_bos = true;
  EXPECT_THAT(load("{\"text\": \"ab\"}").example(0).input_ids, ElementsAre(1, 2, kEos));
  options_.add_bos = true;
  EXPECT_THAT(load("{\"text\": \"ab\"}").example(0).input_ids, ElementsAre(kBos, 1, 2, kEos));
}

TEST_F(DatasetTest, IdsGetNothingAdded) {
  tokenizer_.post_processor_adds_bos = true;
  EXPECT_THAT(load("{\"input_ids\": [1, 2]}").example(0).input_ids, ElementsAre(1, 2));
}

TEST_F(DatasetTest, TextsAreCutToTheirFirstMaxLengthTokensWithANote) {
  options_.max_length = 4;
  const std::string content = "{\"text\": \"abc\"}\n{\"text\": \"abcd\"}\n{\"text\": \"abcdefgh\"}\n";
  const Dataset data = load(content);
  EXPECT_THAT(data.example(0).input_ids, ElementsAre(1, 2, 3, kEos));
  EXPECT_THAT(data.example(1).input_ids, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(data.example(2).labels, ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(data.row_tokens(2), 3);
  EXPECT_EQ(data.row_supervised_tokens(2), 3);
  EXPECT_THAT(row(data, 2).labels, ElementsAre(2, 3, 4));
  EXPECT_THAT(notices(content), HasSubstr("heddle: note: 2 of 3 texts are longer than max_length 4"));
}

TEST_F(DatasetTest, IdsOfMaxLengthPlus1FitAndLongerOnesAreRefused) {
  options_.max_length = 4;
  EXPECT_EQ(load("{\"input_ids\": [1, 2, 3, 4, 5]}").row_tokens(0), 4);
  for (const bool packing : {false, true}) {
    options_.packing = packing;
    EXPECT_EQ(error_of("{\"input_ids\": [1, 2]}\n\n{\"input_ids\": [1, 2, 3, 4, 5, 6]}"),
              "rows.jsonl:3: input_ids has 6 ids; expected at most 5 (max_length 4 + 1)");
  }
}

TEST_F(DatasetTest, JsonArraysObjectsAndPlainTextAreRead) {
  const Dataset array = load("[{\"input_ids\": [1, 2]},\n {\"text\": \"ab\"}]", "rows.json");
  EXPECT_EQ(array.num_rows(), 2);
  EXPECT_THAT(array.source(1), testing::EndsWith("rows.json:2"));
  EXPECT_EQ(load("{\"input_ids\": [1, 2]}", "rows.json").num_rows(), 1);
  // A byte order mark is no part of the text; line ends are.
  EXPECT_THAT(load("\xEF\xBB\xBF"
                   "ab\r\nc",
                   "story.txt")
                  .example(0)
                  .input_ids,
              ElementsAre(1, 2, 27, 27, 3, kEos));
  EXPECT_THAT(load("ab", "story").example(0).input_ids, ElementsAre(1, 2, kEos));
}

TEST_F(DatasetTest, ByteOrderMarkAndWindowsLineEndsAreAccepted) {
  const Dataset data = load("\xEF\xBB\xBF{\"text\": \"a\"}\r\n\r\n{\"text\": \"b\"}\r\n");
  EXPECT_EQ(data.num_rows(), 2);
  EXPECT_THAT(data.source(1), testing::EndsWith("rows.jsonl:3"));
}

TEST_F(DatasetTest, BadRowsNameFileAndPhysicalLine) {
  const std::string good = "{\"text\": \"a\"}\n";
  EXPECT_THAT(error_of(good + good + "{\"input_ids\": [1, 2"), StartsWith("rows.jsonl:3: not valid JSON"));
  EXPECT_EQ(error_of(good + "\n[1]\n"), "rows.jsonl:3: a row is a list; expected an object");
  EXPECT_EQ(error_of(good + "{\"text\": null}\n{\"text\": 4}"), "rows.jsonl:2: text is null; expected a string");
  EXPECT_THAT(error_of(std::string(100, '\0')), StartsWith("rows.jsonl:1: "));
  EXPECT_EQ(error_of("[{\"text\": \"a\"},\n{\"text\": 4}]", "r.json"), "r.json:2: text is 4; expected a string");
  EXPECT_THAT(error_of("[{\"text\": \"a\"},\n{\"text\": \"b\"}", "r.json"),
              AllOf(StartsWith("r.json:2: "), HasSubstr("not closed")));
  EXPECT_THAT(error_of("text", "r.json"), AllOf(StartsWith("r.json:1: "), HasSubstr("expected an array")));
  EXPECT_EQ(error_of("ab\nc\xff", "story.txt"), "story.txt:2: byte 0xFF at column 2 is not valid UTF-8");
}

TEST_F(DatasetTest, TheFirstBadRowIsNamedWhateverTheThreads) {
  std::string content;
  for (int i = 1; i <= 400; ++i)
    content += i % 100 == 37 ? "{\"text\": " + std::to_string(i) + "}\n" : "{\"text\": \"ab\"}\n";
  const int before = threads();
  set_threads(4);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(error_of(content), "rows.jsonl:37: text is 37; expected a string");
  set_threads(before);
}

TEST_F(DatasetTest, RowsKeepFileOrderWhateverTheThreads) {
  std::string content;
  for (int i = 0; i < 20000; ++i)
    content += "{\"input_ids\": [" + std::to_string(i % 30) + ", " + std::to_string(i % 29) + "]}\n";
  const int before = threads();
  set_threads(4);
  const Dataset data = load(content);
  set_threads(before);
  ASSERT_EQ(data.num_rows(), 20000);
  for (int i = 0; i < 20000; ++i) {
    ASSERT_THAT(data.example(i).input_ids, ElementsAre(i % 30, i % 29));
    ASSERT_THAT(data.source(i), testing::EndsWith(":" + std::to_string(i + 1)));
  }
}

TEST_F(DatasetTest, FilesWithoutRowsAreRefused) {
  EXPECT_THAT(error_of(""), HasSubstr("rows.jsonl: holds no row"));
  EXPECT_THAT(error_of("\n \r\n\n"), HasSubstr("rows.jsonl: holds no row"));
  EXPECT_THAT(error_of("[]", "r.json"), HasSubstr("r.json: holds no row"));
  EXPECT_THAT(error_of("", "story.txt"), HasSubstr("story.txt: holds no row"));
}

TEST_F(DatasetTest, FilesThatCannotBeReadAreRefused) {
  options_.files = {{(folder_ / "absent.jsonl").string(), 1.0}};
  EXPECT_THROW(Dataset::load(options_, &tokenizer_), Error);
  std::filesystem::create_directory(folder_ / "folder.jsonl");
  options_.files = {{(folder_ / "folder.jsonl").string(), 1.0}};
  EXPECT_THROW(Dataset::load(options_, &tokenizer_), Error);
}

/// Does something to the data file once its first text is encoded.
class DisturbingTokenizer : public LetterTokenizer {
 public:
  std::function<void()> disturb;
  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens) const override {
    if (text != "a" && !is_done.exchange(true)) disturb();  // "a" is the probe for special tokens
    return LetterTokenizer::encode(text.substr(0, 10), add_special_tokens);
  }
  mutable std::atomic<bool> is_done = false;
};

TEST_F(DatasetTest, AFileThatChangesWhileItIsReadIsAnError) {
  std::string rows;
  while (rows.size() < (std::size_t{10} << 20)) rows += "{\"text\": \"" + std::string(2000, 'b') + "\"}\n";
  const auto error = [&](const std::string& name, std::string_view content, auto&& change) -> std::string {
    for (const bool with_cache : {false, true}) {
      options_.cache_folder = with_cache ? folder_ / "cache" : std::filesystem::path();
      options_.files = {{write(name, content), 1.0}};
      DisturbingTokenizer tokenizer;
      tokenizer.disturb = [&] { change(folder_ / name); };
      try {
        Dataset::load(options_, &tokenizer);
        return "no error";
      } catch (const Error& e) {
        if (with_cache) return e.what();
      }
    }
    return "";
  };
  const auto shrink = [](const auto& path) { std::filesystem::resize_file(path, 5000); };
  const auto append = [](const auto& path) { std::ofstream(path, std::ios::app) << "{}\n"; };
  const std::string from = fmt::format("from {} to ", rows.size());
  EXPECT_THAT(error("rows.jsonl", rows, shrink), AllOf(HasSubstr("rows.jsonl: has shrunk " + from + "5000 bytes")));
  EXPECT_THAT(error("text.txt", rows, shrink), HasSubstr("text.txt: has changed " + from + "5000 bytes"));
  EXPECT_THAT(error("rows.jsonl", rows, append), HasSubstr("rows.jsonl: has changed " + from));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ / "cache"), {}), 0);
}

TEST_F(DatasetTest, AFileLongerThanAWindowKeepsItsRowsAndLines) {
  std::string content;
  std::int64_t rows = 0;
  for (; content.size() < (std::size_t{18} << 20); ++rows) {
    content += "{\"text\": \"" + std::string(static_cast<std::size_t>(1 + rows % 700), 'a') + "\"}\n\n";
  }
  content +=
      "{\"text\": \"" + std::string(std::size_t{9} << 20, 'b') + "c\"}\n{\"text\": \"xyz\"}";  // longer than a window
  options_.max_length = std::int64_t{1} << 24;
  const Dataset data = load(content);
  ASSERT_EQ(data.num_examples(), rows + 2);
  EXPECT_EQ(data.example(700).input_ids.size(), 2u);
  EXPECT_EQ(data.example(699).input_ids.size(), 701u);
  EXPECT_EQ(data.example(rows).input_ids.size(), (std::size_t{9} << 20) + 2);
  EXPECT_THAT(data.example(rows + 1).input_ids, ElementsAre(24, 25, 26, kEos));
  EXPECT_THAT(data.source(rows + 1), testing::EndsWith(fmt::format(":{}", 2 * rows + 2)));
}

TEST_F(DatasetTest, RowsWithoutATargetAreDroppedInAWarningThatNamesThem) {
  const std::string content =
      "{\"input_ids\": [1, 2]}\n"
      "{\"input_ids\": [1, 2, 3], \"labels\": [1, -100, -100]}\n"  // the first label predicts nothing
      "{\"input_ids\": [1]}\n"
      "{\"text\": \"\"}\n"
      "{\"input_ids\": [3, 4]}\n"
      "{\"input_ids\": []}\n";
  const Dataset data = load(content);
  ASSERT_EQ(data.num_rows(), 2);
  EXPECT_THAT(data.example(1).input_ids, ElementsAre(3, 4));
  const std::string said = notices(content);
  EXPECT_THAT(said, HasSubstr("heddle: warning: 4 rows are dropped"));
  for (const int line : {2, 3, 4, 6}) EXPECT_THAT(said, HasSubstr("rows.jsonl:" + std::to_string(line)));
  EXPECT_THAT(said, AllOf(Not(HasSubstr("rows.jsonl:1")), Not(HasSubstr("rows.jsonl:5"))));
}

TEST_F(DatasetTest, NothingToLearnIsAnError) {
  EXPECT_THAT(error_of("{\"input_ids\": [1, 2], \"labels\": [1, -100]}\n{\"text\": \"\"}"),
              AllOf(HasSubstr("target"), HasSubstr("-100"), HasSubstr("rows.jsonl:1, rows.jsonl:2")));
  options_.max_length = 1;
  EXPECT_THAT(error_of("{\"text\": \"abc\"}"), HasSubstr("target"));
}

TEST_F(DatasetTest, RowsLeftOutByMaxLengthDoNotShiftTheOthers) {
  options_.max_length = 1;  // leaves a text one token, ids of two fit
  const Dataset data = load(
      "{\"text\": \"ab\"}\n{\"input_ids\": [1, 2]}\n{\"text\": \"ab\"}\n{\"text\": \"ab\"}\n{\"input_ids\": [3, "
      "4]}\n{\"text\": \"c\"}");
  ASSERT_EQ(data.num_rows(), 2);
  EXPECT_THAT(data.example(0).input_ids, ElementsAre(1, 2));
  EXPECT_THAT(data.example(1).input_ids, ElementsAre(3, 4));
  EXPECT_THAT(data.source(1), testing::EndsWith(":5"));
}

TEST_F(DatasetTest, BadRowsAreSkippedAloudWhereAsked) {
  options_.skip_bad_rows = true;
  const std::string content =
      "{\"text\": 5}\n{\"text\": \"ab\"}\n{\"input_ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}\nx\n{\"input_ids\": [1, "
      "2]}\n";
  const Dataset data = load(content);
  ASSERT_EQ(data.num_rows(), 2);
  EXPECT_THAT(data.source(1), testing::EndsWith(":5"));
  const std::string said = notices(content);
  EXPECT_THAT(said, AllOf(HasSubstr("rows.jsonl:1: text is 5; expected a string; the row is skipped"),
                          HasSubstr("rows.jsonl:3: input_ids has 10 ids"), HasSubstr("rows.jsonl:4: not valid JSON"),
                          HasSubstr("heddle: warning: 3 rows are skipped")));
  EXPECT_THAT(error_of("x\n"), AllOf(HasSubstr("no row is left"), HasSubstr("skipped as bad")));
}

TEST_F(DatasetTest, FieldsThatAreNotUsedAreNamedOnce) {
  const std::string said = notices("{\"text\": \"a\", \"id\": 1}\n{\"text\": \"b\", \"id\": 2, \"meta\": {}}\n");
  EXPECT_THAT(said, HasSubstr("heddle: note: "));
  EXPECT_THAT(said, HasSubstr("rows.jsonl: fields not used: id, meta\n"));
}

TEST_F(DatasetTest, TextNeedsATokenizerThatFitsTheModel) {
  options_.files = {{write("rows.jsonl", "{\"text\": \"a\"}\n"), 1.0}};
  EXPECT_THROW(Dataset::load(options_, nullptr), Error);
  options_.vocab_size = 20;
  EXPECT_THAT(error_of("{\"text\": \"abc\"}"),
              AllOf(StartsWith("rows.jsonl:1: the tokenizer gives id 28"), HasSubstr("from 0 to 19")));
  options_.files = {{write("rows.jsonl", "{\"input_ids\": [1, 2]}\n"), 1.0}};
  EXPECT_EQ(Dataset::load(options_, nullptr).num_rows(), 1);
}

TEST_F(DatasetTest, FilesFollowOneAnother) {
  options_.files = {{write("a.jsonl", "{\"input_ids\": [1, 2]}\n{\"input_ids\": [3, 4]}\n"), 1.0},
                    {write("b.jsonl", "{\"input_ids\": [5, 6]}\n"), 1.0}};
  const Dataset data = Dataset::load(options_, nullptr);
  ASSERT_EQ(data.num_rows(), 3);
  EXPECT_THAT(data.example(2).input_ids, ElementsAre(5, 6));
  EXPECT_THAT(data.source(2), testing::EndsWith("b.jsonl:1"));
}

TEST_F(DatasetTest, AWeightIsHowOftenAnEpochTakesAFilesRows) {
  std::string many;
  for (int i = 0; i < 10; ++i) many += fmt::format("{{\"input_ids\": [{}, {}]}}\n", i, i);
  options_.files = {{write("a.jsonl", "{\"input_ids\": [21, 21]}\n{\"input_ids\": [22, 22]}\n"), 2.5},
                    {write("b.jsonl", many), 0.3}};
  const auto first_ids = [&](const Dataset& data) {
    std::vector<std::int32_t> ids;
    for (std::int64_t i = 0; i < data.num_rows(); ++i) {
      const auto input_ids = row(data, i).input_ids;
      ids.insert(ids.end(), input_ids.begin(), input_ids.end());
    }
    return ids;
  };
  const Dataset data = Dataset::load(options_, nullptr);
  EXPECT_EQ(data.num_examples(), 12);  // of the files
  EXPECT_THAT(first_ids(data), ElementsAre(21, 22, 21, 22, 21, 0, 3, 6));
  EXPECT_THAT(data.source(7), testing::EndsWith("b.jsonl:7"));
  options_.packing = true;
  const Dataset packed = Dataset::load(options_, nullptr);
  EXPECT_EQ(packed.num_rows(), 1);
  EXPECT_THAT(first_ids(packed), ElementsAre(21, 22, 21, 22, 21, 0, 3, 6));
  for (const double weight : {0.0, -1.0, 1e30, std::numeric_limits<double>::quiet_NaN()}) {
    options_.files[0].weight = weight;
    EXPECT_THROW(Dataset::load(options_, nullptr), Error) << weight;
  }
}

TEST_F(DatasetTest, AWeightOfPackedTextIsInPositions) {
  options_.packing = true;
  options_.max_length = 4;
  options_.files = {{write("a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"cd\"}"), 1.5},  // 4 positions
                    {write("b.jsonl", "{\"text\": \"x\"}"), 2.0}};                      // 1 position
  const Dataset data = Dataset::load(options_, &tokenizer_);
  ASSERT_EQ(data.num_rows(), 2);
  EXPECT_THAT(row(data, 0).input_ids, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(row(data, 1).input_ids, ElementsAre(1, 2, 24, 24));
  EXPECT_THAT(row(data, 1).labels, ElementsAre(2, kEos, kEos, kEos));
  EXPECT_THAT(row(data, 1).document_starts, ElementsAre(0, 2, 3, 4));
}

TEST_F(DatasetTest, FoldersAreReadInTheOrderOfPaths) {
  std::filesystem::create_directories(folder_ / "rows" / "deep");
  write("rows/b.jsonl", "{\"text\": \"b\"}\n");
  write("rows/deep/c.txt", "c");
  write("rows/a.json", "[{\"text\": \"a\"}]");
  write("rows/README.md", "no data");
  write("rows/.hidden.jsonl", "no data");
  options_.files = {{(folder_ / "rows").string(), 1.0}};
  testing::internal::CaptureStderr();
  const Dataset data = Dataset::load(options_, &tokenizer_);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("1 file is no data file and passed over"));
  ASSERT_EQ(data.num_rows(), 3);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(data.example(i).input_ids.front(), i + 1);
}

TEST_F(DatasetTest, PackingIsTheDefaultForPlainTextAlone) {
  options_.packing = std::nullopt;
  EXPECT_TRUE(load("{\"text\": \"ab\"}").packed());
  EXPECT_TRUE(load("ab", "story.txt").packed());
  EXPECT_FALSE(load("{\"text\": \"ab\"}\n{\"input_ids\": [1, 2]}").packed());
}

// Documents a b c d $ | e f $ | g h i j k $ in rows of 4 positions: 4, 2 and 5 targets.
TEST_F(DatasetTest, PackedTextLosesNoTargetAndDocumentsStayApart) {
  options_.packing = true;
  options_.max_length = 3;
  const Dataset data = load("{\"text\": \"abcd\"}\n{\"text\": \"\"}\n{\"text\": \"ef\"}\n{\"text\": \"ghijk\"}\n");
  ASSERT_EQ(data.num_rows(), 4);  // 11 targets in rows of 3
  const MicroBatch first = row(data, 0), second = row(data, 1), third = row(data, 2), last = row(data, 3);
  EXPECT_THAT(first.input_ids, ElementsAre(1, 2, 3));
  EXPECT_THAT(first.labels, ElementsAre(2, 3, 4));
  // The part after the cut starts with d, the last token before it, at position 0.
  EXPECT_THAT(second.input_ids, ElementsAre(4, 5, 6));
  EXPECT_THAT(second.labels, ElementsAre(kEos, 6, kEos));
  EXPECT_THAT(second.positions, ElementsAre(0, 0, 1));
  EXPECT_THAT(second.document_starts, ElementsAre(0, 1, 3));
  EXPECT_THAT(third.labels, ElementsAre(8, 9, 10));
  EXPECT_THAT(last.input_ids, ElementsAre(10, 11));
  EXPECT_THAT(last.labels, ElementsAre(11, kEos));
  EXPECT_THAT(last.positions, ElementsAre(0, 1));
  EXPECT_EQ(data.row_documents(1), 2);
  EXPECT_EQ(data.row_tokens(3), 2);
  EXPECT_THAT(data.source(1), testing::EndsWith("rows.jsonl:1"));
  EXPECT_THAT(data.source(2), testing::EndsWith("rows.jsonl:4"));
  EXPECT_THAT(data.example(0).input_ids, ElementsAre(1, 2, 3, 4, kEos));  // as before packing
}

// Every (document, token) that can be predicted, is, once; whatever the lengths.
TEST_F(DatasetTest, PackingKeepsEveryTargetOfEveryFile) {
  options_.packing = true;
  for (const std::int64_t max_length : {1, 2, 3, 7, 64, 1000}) {
    options_.max_length = max_length;
    options_.files.clear();
    std::vector<std::pair<std::int32_t, std::int32_t>> expected;  // input, label
    for (int file = 0; file < 3; ++file) {
      std::string content;
      for (int document = 0; document < 15; ++document) {
        std::string text;
        for (int i = 0; i < (file * 31 + document * 7) % 23; ++i)
          text += static_cast<char>('a' + (file * 5 + document * 3 + i) % 26);
        for (std::size_t i = 0; i < text.size(); ++i) {
          expected.emplace_back(text[i] - 'a' + 1, i + 1 < text.size() ? text[i + 1] - 'a' + 1 : kEos);
        }
        content += "{\"text\": \"" + text + "\"}\n";
      }
      options_.files.push_back({write("f" + std::to_string(file) + ".jsonl", content), 1.0});
    }
    const Dataset data = Dataset::load(options_, &tokenizer_);
    std::vector<std::pair<std::int32_t, std::int32_t>> got;
    for (std::int64_t r = 0; r < data.num_rows(); ++r) {
      const MicroBatch batch = row(data, r);
      EXPECT_EQ(batch.tokens(), data.row_tokens(r));
      EXPECT_EQ(static_cast<std::int64_t>(batch.document_starts.size()) - 1, data.row_documents(r));
      EXPECT_TRUE(batch.tokens() == max_length || r + 1 == data.num_rows());
      for (std::size_t i = 0; i < batch.input_ids.size(); ++i) got.emplace_back(batch.input_ids[i], batch.labels[i]);
      for (std::size_t d = 0; d + 1 < batch.document_starts.size(); ++d) {
        for (auto i = batch.document_starts[d]; i < batch.document_starts[d + 1]; ++i) {
          EXPECT_EQ(batch.positions[static_cast<std::size_t>(i)], i - batch.document_starts[d]);
        }
      }
    }
    EXPECT_EQ(got, expected) << "max_length " << max_length;
  }
}

TEST_F(DatasetTest, RowsOfIdsArePackedWhole) {
  options_.packing = true;
  options_.max_length = 5;
  // 4, 2, 3, 1 positions into rows of 5: {4, 1} and {2, 3}.
  const Dataset data = load(
      "{\"input_ids\": [1, 2, 3, 4, 5]}\n{\"input_ids\": [6, 7, 8], \"labels\": [-100, -100, 8]}\n"
      "{\"input_ids\": [9, 10, 11, 12]}\n{\"input_ids\": [13, 14]}\n");
  ASSERT_EQ(data.num_rows(), 2);
  EXPECT_THAT(row(data, 0).input_ids, ElementsAre(1, 2, 3, 4, 13));
  EXPECT_THAT(row(data, 0).document_starts, ElementsAre(0, 4, 5));
  EXPECT_THAT(row(data, 1).input_ids, ElementsAre(6, 7, 9, 10, 11));
  EXPECT_THAT(row(data, 1).labels, ElementsAre(-100, 8, 10, 11, 12));
  EXPECT_EQ(data.row_supervised_tokens(1), 4);
}

TEST_F(DatasetTest, TextAmongIdsIsStillOneStream) {
  options_.packing = true;
  options_.max_length = 4;
  const Dataset data = load(
      "{\"text\": \"abc\"}\n{\"input_ids\": [9, 8, 7]}\n{\"text\": \"de\"}\n{\"input_ids\": [6, 5]}\n{\"input_ids\": "
      "[4, 3, 2, 1, 0]}\n");
  ASSERT_EQ(data.num_rows(), 4);  // text: 5 targets in 2 rows; ids: 2 + 1 and 4
  EXPECT_THAT(row(data, 0).input_ids, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(row(data, 0).labels, ElementsAre(2, 3, kEos, 5));
  EXPECT_THAT(row(data, 1).labels, ElementsAre(kEos));
  EXPECT_THAT(row(data, 2).input_ids, ElementsAre(9, 8, 6));
  EXPECT_THAT(row(data, 3).input_ids, ElementsAre(4, 3, 2, 1));
}

}  // namespace
}  // namespace heddle
