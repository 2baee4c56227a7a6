#include "data/parquet_rows.h"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "data_folder.h"
#include "formats/json.h"

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

/// The files are pyarrow's: scripts/make_parquet_files.py says from which values.
class ParquetRows : public DataFolder {
 protected:
  void SetUp() override {
    DataFolder::SetUp();
    if (::dlopen("libheddle_parquet.so", RTLD_NOW) == nullptr) {
      const std::string path = write("rows.parquet", "PAR1");
      try {
        open_parquet_rows(FileReader(path), [](auto) { return true; });
        ADD_FAILURE() << "there is no module, and no error";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), StartsWith(path + ": this program has no module for Parquet"));
        EXPECT_THAT(error.what(), HasSubstr("scripts/setup --parquet"));
      }
      GTEST_SKIP() << "this build has no module for Parquet (scripts/setup --parquet)";
    }
  }

  static std::string content(const std::string& name) {
    std::ifstream in(HEDDLE_SOURCE_DIR "/tests/data/parquet_files/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// The lines of a file of this content, read in pieces of `step` bytes.
  std::vector<std::string> lines_of(
      std::string_view bytes, std::size_t step = 4096,
      const std::function<bool(std::string_view)>& is_used = [](std::string_view) { return true; }) {
    const FileReader file(write("rows.parquet", bytes));
    const auto rows = open_parquet_rows(file, is_used);
    std::string text, piece(step, '\0');
    for (std::size_t size = step; size == step; text.append(piece, 0, size)) size = rows->read(piece);
    std::vector<std::string> lines;
    for (std::size_t end = 0; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1)) {
      lines.push_back(text.substr(0, end));
    }
    EXPECT_EQ(text, "");
    return lines;
  }
  std::vector<Json> rows_of(std::string_view bytes) {
    std::vector<Json> rows;
    for (const std::string& line : lines_of(bytes)) rows.push_back(parse_json(line, "row"));
    return rows;
  }
};

TEST_F(ParquetRows, ValuesOfEveryTypeBecomeThoseOfJson) {
  const std::vector<Json> rows = rows_of(content("types.parquet"));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0], parse_json(R"({
      "bool": true, "int8": -128, "int16": -32768, "int32": -2147483648, "int64": -9223372036854775808,
      "uint8": 0, "uint16": 0, "uint32": 0, "uint64": 0, "half": 1.5, "float": 0.5, "double": 0.1,
      "string": "", "large_string": "x", "string_view": "short", "binary": "bytes", "fixed": "ab", "dictionary": "yes",
      "list": [], "large_list": ["a"], "fixed_list": [1, 2], "lists": [[true], []],
      "struct": {"a": 1, "b": "x"}, "structs": [{"k": "p", "v": [0.25]}, {}],
      "map": {"one": 1}, "number_map": {"7": true}, "json": {"a": [1, 2]},
      "time": "1970-01-01 00:00:00.000", "date": "1970-01-01", "decimal": "1.50"})",
                                "expected"));
  EXPECT_EQ(rows[1], parse_json(R"({
      "bool": false, "int8": 127, "int16": 32767, "int32": 2147483647, "int64": 9223372036854775807,
      "uint8": 255, "uint16": 65535, "uint32": 4294967295, "uint64": 18446744073709551615,
      "half": -2.0, "float": 1.00000002004087734272e20, "double": -3.0,
      "string": "a\"\\\n\r\t\u0000\u001fé😀", "large_string": "\u2028", "string_view": "longer than twelve bytes",
      "binary": "é", "fixed": "cd", "dictionary": "no",
      "list": [1, null, 3], "large_list": ["b", "c"], "fixed_list": [3, 4], "lists": [null, [false, null]],
      "struct": {}, "structs": [null], "map": {}, "number_map": {}, "json": "not JSON",
      "time": "1970-01-01 23:59:59.000", "date": "1971-01-01", "decimal": "-0.01"})",
                                "expected"));
  EXPECT_EQ(rows[2].size(), 31u);  // nulls alone, NaN and infinity among them
  for (const auto& [name, value] : rows[2].items()) EXPECT_TRUE(value.is_null()) << name;
  EXPECT_TRUE(rows[1].at("double").is_number_float());
}

TEST_F(ParquetRows, RowsAreTheSameInEveryCodecEncodingAndPieceSize) {
  std::vector<std::string> expected;
  for (int i = 0; i < 8; ++i) {
    for (const char* text : {"\"ab\"", "\"cd\"", "\"ab\"", "", "\"efg\""}) {
      expected.push_back(*text != '\0' ? fmt::format("{{\"text\":{},\"note\":\"x\"}}", text) : "{\"note\":\"x\"}");
    }
  }
  for (const char* name : {"none", "snappy", "gzip", "brotli", "lz4", "zstd", "pages"}) {
    EXPECT_EQ(lines_of(content(fmt::format("texts_{}.parquet", name))), expected) << name;
  }
  for (const std::size_t step : {1u, 7u, 27u}) EXPECT_EQ(lines_of(content("texts_none.parquet"), step), expected);
  EXPECT_THAT(lines_of(content("no_rows.parquet")), ElementsAre());
}

TEST_F(ParquetRows, ColumnsThatAreNotUsedAreNotRead) {
  std::string bytes = content("bytes.parquet");
  bytes.replace(4, 20, 20, '\xFF');  // the pages of its one column
  EXPECT_THAT(lines_of(bytes, 4096, [](std::string_view name) { return name != "text"; }),
              ElementsAre("{\"text\":null}", "{\"text\":null}", "{\"text\":null}"));
  EXPECT_THROW(lines_of(bytes), Error);
}

class ParquetChats : public ParquetRows {
 protected:
  void SetUp() override {
    ParquetRows::SetUp();
    options_.chat_template = &template_;
  }
  const ChatTemplate template_{
      "{% for m in messages %}{{ m.content }}{% if m.weight is defined %}!{% endif %}{% endfor %}", "template",
      Json::object()};
};

TEST_F(ParquetChats, TrainAsTheSameRowsInJsonLinesDo) {
  const Dataset expected = load(
      "{\"messages\": [{\"role\": \"user\", \"content\": \"ab\"}, {\"role\": \"assistant\", \"content\": \"cd\"}]}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"e\"}, {\"role\": \"assistant\", \"content\": \"f\", "
      "\"weight\": 0},"
      " {\"role\": \"user\", \"content\": \"g\"}, {\"role\": \"assistant\", \"content\": \"hi\", \"weight\": 1}]}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}]}\n");
  options_.skip_bad_rows = true;  // the third, and one of nulls alone
  const Dataset data = load(content("chats.parquet"), "a.parquet");
  ASSERT_EQ(data.num_examples(), 3);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(data.example(i).input_ids, expected.example(i).input_ids);
    EXPECT_EQ(data.example(i).labels, expected.example(i).labels);
  }
}

TEST_F(ParquetChats, BadRowsAreNamedByTheirNumber) {
  EXPECT_EQ(error_of(content("chats.parquet"), "a.parquet"), "a.parquet:3: messages[1] has no role");
  EXPECT_EQ(error_of(content("texts_none.parquet"), "a.parquet"), "a.parquet:4: text is null; expected a string");
  EXPECT_EQ(error_of(content("bytes.parquet"), "a.parquet"), "a.parquet:2: byte 0xFF at column 11 is not valid UTF-8");
}

TEST_F(ParquetRows, ShardsOfAFolderAreReadInTheirOrder) {
  std::filesystem::create_directory(folder_ / "data");
  options_.skip_bad_rows = true;
  write("data/train-00001-of-00002.parquet", content("bytes.parquet"));
  write("data/train-00000-of-00002.parquet", content("texts_zstd.parquet"));
  options_.files = {{(folder_ / "data").string(), 1.0}};
  const Dataset data = Dataset::load(options_, &tokenizer_);
  ASSERT_EQ(data.num_examples(), 34);
  EXPECT_THAT(data.example(3).source, EndsWith("train-00000-of-00002.parquet:5"));
  EXPECT_THAT(data.example(3).input_ids, ElementsAre(5, 6, 7, LetterTokenizer::kEos));
  EXPECT_THAT(data.example(33).source, EndsWith("train-00001-of-00002.parquet:3"));
}

/// The error that a file of these bytes gives; "" where its rows can be read.
class DamagedParquet : public ParquetRows {
 protected:
  std::string error(std::string_view bytes) {
    try {
      lines_of(bytes);
    } catch (const Error& caught) {
      return caught.what();
    }
    return "";
  }
  std::string prefix() const { return (folder_ / "rows.parquet").string() + ": not readable as Parquet"; }
};

TEST_F(DamagedParquet, AFileThatIsCutIsAnErrorThatNamesIt) {
  const std::string sound = content("texts_none.parquet");
  for (std::size_t size = 0; size < sound.size(); size += 23) {
    EXPECT_THAT(error(sound.substr(0, size)), StartsWith(prefix())) << size;
  }
}

/// Where a byte is changed there may still be rows, but there is neither a crash nor an error without the file's name.
TEST_F(DamagedParquet, AChangedByteIsAtMostAnErrorThatNamesTheFile) {
  std::size_t errors = 0;
  for (const char* name : {"texts_snappy.parquet", "texts_pages.parquet", "chats.parquet"}) {
    const std::string sound = content(name);
    for (std::size_t at = 0; at < sound.size(); at += 11) {
      std::string damaged = sound;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
      const std::string reason = error(damaged);
      EXPECT_TRUE(reason.empty() || reason.starts_with(prefix())) << name << ", byte " << at << ": " << reason;
      errors += reason.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(errors, 100u);
}

TEST_F(DamagedParquet, ChecksumsOfPagesAreHeld) {
  std::string bytes = content("texts_pages.parquet");
  const std::size_t in_statistics = bytes.find("efg"), at = bytes.find("efg", in_statistics + 1);
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'x';
  EXPECT_EQ(error(bytes), prefix() +
                              ", row group 1: could not verify page integrity, CRC checksum verification failed for "
                              "page_ordinal 0");
}

}  // namespace
}  // namespace heddle
