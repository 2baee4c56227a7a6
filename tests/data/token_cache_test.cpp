#include "data/token_cache.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "data_folder.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

const std::string kKey(32, 'k');

class TokenCacheTest : public DataFolder {
 protected:
  void SetUp() override {
    DataFolder::SetUp();
    options_.cache_folder = folder_ / "cache";
  }
  std::vector<std::filesystem::path> cache_files() const {
    std::vector<std::filesystem::path> files;
    if (!std::filesystem::exists(options_.cache_folder)) return files;
    for (const auto& entry : std::filesystem::directory_iterator(options_.cache_folder)) files.push_back(entry.path());
    return files;
  }
  static std::string read(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// What the tokenizer was asked to encode, the one probe for special tokens (two texts) not counted.
  int texts_encoded() { return tokenizer_.texts_encoded.exchange(0) - 2; }
  static std::vector<std::int32_t> ids_of(const TokenTable& table, std::int64_t index) {
    const TokenRow row = table.row(index);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(row.length));
    table.read_ids(row, 0, ids);
    return ids;
  }
  static std::vector<std::int32_t> labels_of(const TokenTable& table, std::int64_t index) {
    const TokenRow row = table.row(index);
    std::vector<std::int32_t> labels(static_cast<std::size_t>(row.length));
    table.read_labels(row, 0, labels);
    return labels;
  }
  static void fill(TokenTableWriter& writer) {
    writer.append(RowKind::text, 1, std::vector<std::int32_t>{1, 2, 3}, {});
    writer.append(RowKind::ids, 4, std::vector<std::int32_t>{4, 5}, std::vector<std::int32_t>{-100, 5});
    writer.append(RowKind::ids, 5, std::vector<std::int32_t>{4, 5}, std::vector<std::int32_t>{5, -100});
    writer.append(RowKind::text, 6, std::vector<std::int32_t>{7, 8}, {});
    writer.notes().bad_rows.push_back({9, "no \"good\"\n\xff"});
    writer.notes().ignored_fields.push_back("id");
  }
  static void expect_filled(const TokenTable& table) {
    ASSERT_EQ(table.num_rows(), 3);
    EXPECT_THAT(ids_of(table, 0), ElementsAre(1, 2, 3));
    EXPECT_THAT(labels_of(table, 0), ElementsAre(1, 2, 3));
    EXPECT_THAT(labels_of(table, 1), ElementsAre(-100, 5));
    EXPECT_THAT(ids_of(table, 2), ElementsAre(7, 8));
    EXPECT_EQ(table.row(1).targets, 1);
    EXPECT_EQ(table.row(2).stream_start, 2);
    EXPECT_EQ(table.row(2).line, 6);
    EXPECT_EQ(table.stream_length(), 3);
    EXPECT_THAT(table.notes().rows_without_targets, ElementsAre(5));
    EXPECT_THAT(table.notes().ignored_fields, ElementsAre("id"));
    ASSERT_EQ(table.notes().bad_rows.size(), 1u);
    EXPECT_EQ(table.notes().bad_rows[0].line, 9);
  }
};

TEST_F(TokenCacheTest, ATableIsTheSameInMemoryAndFromDisk) {
  TokenTableWriter in_memory, on_disk(folder_ / "t.tokens", kKey);
  fill(in_memory);
  fill(on_disk);
  expect_filled(in_memory.finish());
  expect_filled(on_disk.finish());
  std::string damage;
  const auto again = TokenTable::open(folder_ / "t.tokens", kKey, damage);
  ASSERT_TRUE(again) << damage;
  expect_filled(*again);
}

TEST_F(TokenCacheTest, ManyRowsPassThroughTheDiskInPieces) {
  TokenTableWriter writer(folder_ / "t.tokens", kKey);
  std::vector<std::int32_t> ids(1000), labels(1000);
  for (int row = 0; row < 3000; ++row) {
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = row * 7 + static_cast<int>(i), labels[i] = row * 3 + static_cast<int>(i);
    writer.append(RowKind::ids, row + 1, ids, labels);
  }
  const TokenTable table = writer.finish();
  ASSERT_EQ(table.num_rows(), 3000);
  for (int row = 0; row < 3000; ++row) {
    ASSERT_EQ(ids_of(table, row)[999], row * 7 + 999);
    ASSERT_EQ(labels_of(table, row)[0], row * 3);
  }
}

TEST_F(TokenCacheTest, ATextInPiecesIsOneRow) {
  for (const bool on_disk : {false, true}) {
    std::optional<TokenTableWriter> writer;
    on_disk ? writer.emplace(folder_ / "t.tokens", kKey) : writer.emplace();
    writer->append_ids(std::vector<std::int32_t>{9, 9});  // never ended: belongs to no row
    writer->append(RowKind::ids, 1, std::vector<std::int32_t>{1, 2}, {});
    writer->append_ids(std::vector<std::int32_t>{3, 4});
    writer->append_ids(std::vector<std::int32_t>{5});
    writer->end_text(2);
    writer->append_ids(std::vector<std::int32_t>{6});
    writer->end_text(3);
    const TokenTable table = writer->finish();
    ASSERT_EQ(table.num_rows(), 2);
    EXPECT_THAT(ids_of(table, 0), ElementsAre(1, 2));
    EXPECT_THAT(ids_of(table, 1), ElementsAre(3, 4, 5));
    EXPECT_EQ(table.row(1).targets, 2);
    EXPECT_EQ(table.stream_length(), 2);
    EXPECT_THAT(table.notes().rows_without_targets, ElementsAre(3));
  }
}

TEST_F(TokenCacheTest, ThePlaceOfAPositionInTheStreamIsFoundAmongRowsOfOtherKinds) {
  TokenTableWriter writer;
  std::vector<std::int64_t> row_at;  // of each position
  for (int row = 0; row < 500; ++row) {
    const int length = 2 + row % 5;
    const RowKind kind = row % 3 == 1 ? RowKind::ids : RowKind::text;
    writer.append(kind, row + 1, std::vector<std::int32_t>(static_cast<std::size_t>(length), 1), {});
    if (kind == RowKind::text) row_at.insert(row_at.end(), static_cast<std::size_t>(length - 1), row);
  }
  const TokenTable table = writer.finish();
  ASSERT_EQ(table.stream_length(), static_cast<std::int64_t>(row_at.size()));
  for (std::size_t position = 0; position < row_at.size(); ++position) {
    std::int64_t row = table.find_stream_row(static_cast<std::int64_t>(position));
    while (table.row(row).kind != RowKind::text) ++row;
    ASSERT_EQ(row, row_at[position]) << position;
  }
}

TEST_F(TokenCacheTest, ACacheThatShrinksWhileItIsReadIsAnError) {
  TokenTableWriter writer(folder_ / "t.tokens", kKey);
  writer.append(RowKind::text, 1, std::vector<std::int32_t>(100000, 7), {});
  const TokenTable table = writer.finish();
  EXPECT_EQ(ids_of(table, 0)[99999], 7);
  std::filesystem::resize_file(folder_ / "t.tokens", 4096);
  try {
    ids_of(table, 0);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("t.tokens: has shrunk from "), HasSubstr(" to 4096 bytes")));
  }
}

TEST_F(TokenCacheTest, WhatAKilledWriterLeftIsRemovedAndALivingOnesIsNot) {
  const std::string content = "{\"text\": \"ab\"}\n";
  std::filesystem::create_directories(options_.cache_folder);
  const pid_t child = ::fork();
  if (child == 0) {
    TokenTableWriter writer(options_.cache_folder / "killed.tokens", kKey);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(cache_files().size(), 1u);
  TokenTableWriter living(options_.cache_folder / "living.tokens", kKey);
  ASSERT_EQ(cache_files().size(), 2u);
  load(content);
  std::vector<std::string> names;
  for (const auto& file : cache_files()) names.push_back(file.filename().string());
  EXPECT_THAT(names,
              testing::UnorderedElementsAre(testing::StartsWith("living.tokens."), testing::EndsWith(".tokens")));
  fill(living);
  living.finish();
  EXPECT_TRUE(std::filesystem::exists(options_.cache_folder / "living.tokens"));
}

TEST_F(TokenCacheTest, AnyDamagedByteIsNoticed) {
  {
    TokenTableWriter writer(folder_ / "t.tokens", kKey);
    fill(writer);
    writer.finish();
  }
  const std::string whole = read(folder_ / "t.tokens");
  std::string damage;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    write("t.tokens", changed);
    EXPECT_FALSE(TokenTable::open(folder_ / "t.tokens", kKey, damage)) << i;
    EXPECT_THAT(damage, Not(IsEmpty())) << i;
  }
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write("t.tokens", whole.substr(0, size));
    EXPECT_FALSE(TokenTable::open(folder_ / "t.tokens", kKey, damage)) << size;
    EXPECT_THAT(damage, Not(IsEmpty())) << size;
  }
  write("t.tokens", whole + "x");
  EXPECT_FALSE(TokenTable::open(folder_ / "t.tokens", kKey, damage));
  write("t.tokens", whole);
  EXPECT_FALSE(TokenTable::open(folder_ / "t.tokens", std::string(32, 'o'), damage));
  EXPECT_TRUE(TokenTable::open(folder_ / "t.tokens", kKey, damage));
  EXPECT_FALSE(TokenTable::open(folder_ / "absent.tokens", kKey, damage));
  EXPECT_THAT(damage, IsEmpty());
}

TEST_F(TokenCacheTest, AWriterThatIsGivenUpLeavesNothing) {
  {
    TokenTableWriter writer(folder_ / "t.tokens", kKey);
    fill(writer);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(TokenCacheTest, KeysDependOnEveryPartAndItsBounds) {
  const auto digest = [](auto... parts) {
    CacheKey key;
    (key.add(parts), ...);
    return key.digest();
  };
  using S = std::string_view;
  EXPECT_EQ(digest(S("ab"), S("c")), digest(S("ab"), S("c")));
  EXPECT_NE(digest(S("ab"), S("c")), digest(S("a"), S("bc")));
  EXPECT_NE(digest(std::int64_t{1}), digest(std::int64_t{2}));
  EXPECT_EQ(digest(S("ab")).size(), 32u);
}

TEST_F(TokenCacheTest, TheSecondLoadTokenizesNothing) {
  const std::string content = "{\"text\": \"ab\"}\n{\"text\": \"cd\"}\n{\"input_ids\": [1, 2], \"labels\": [1, 2]}\n";
  const Dataset first = load(content);
  EXPECT_EQ(texts_encoded(), 2);
  ASSERT_EQ(cache_files().size(), 1u);
  const Dataset second = load(content, "other_name.jsonl");  // content decides, not the name
  EXPECT_EQ(texts_encoded(), 0);
  ASSERT_EQ(second.num_rows(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(second.example(i).input_ids, first.example(i).input_ids);
    EXPECT_EQ(second.example(i).labels, first.example(i).labels);
  }
  EXPECT_THAT(second.source(1), testing::EndsWith("other_name.jsonl:2"));
}

TEST_F(TokenCacheTest, OneCacheServesEveryMaxLengthAndPacking) {
  const std::string content = "{\"text\": \"abcdefghijk\"}\n{\"text\": \"cd\"}\n";
  load(content);
  texts_encoded();
  options_.max_length = 3;
  EXPECT_EQ(load(content).row_tokens(0), 2);
  options_.packing = true;
  EXPECT_EQ(load(content).row_tokens(0), 3);
  EXPECT_EQ(tokenizer_.texts_encoded.exchange(0), 4);  // the two probes
  EXPECT_EQ(cache_files().size(), 1u);
}

TEST_F(TokenCacheTest, WhateverChangesTheIdsMissesTheCache) {
  const std::string content = "{\"text\": \"ab\"}\n";
  const auto misses = [&](const std::string& text, const std::string& name = "rows.jsonl") {
    load(text, name);
    return texts_encoded() > 0;
  };
  EXPECT_TRUE(misses(content));
  EXPECT_FALSE(misses(content));
  EXPECT_TRUE(misses(content + "\n"));
  EXPECT_TRUE(misses(content, "rows.txt"));  // the same bytes as one plain text
  options_.vocab_size = 31;
  EXPECT_TRUE(misses(content));
  options_.add_bos = true;
  EXPECT_TRUE(misses(content));
  options_.add_eos = false;
  EXPECT_TRUE(misses(content));
  tokenizer_.name = "other letters";
  EXPECT_TRUE(misses(content));
  EXPECT_FALSE(misses(content));
}

TEST_F(TokenCacheTest, ADamagedCacheIsMadeAgainWithANote) {
  const std::string content = "{\"text\": \"ab\"}\n{\"text\": \"cd\"}\n";
  load(content);
  const auto file = cache_files().at(0);
  const std::string whole = read(file);
  for (const std::string& damaged : {whole.substr(0, whole.size() / 2), std::string(), "x" + whole.substr(1)}) {
    std::ofstream(file, std::ios::binary) << damaged;
    texts_encoded();
    testing::internal::CaptureStderr();
    EXPECT_EQ(load(content).num_rows(), 2);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), AllOf(HasSubstr("heddle: note: "), HasSubstr("damaged")));
    EXPECT_EQ(texts_encoded(), 2);
    EXPECT_EQ(read(file), whole);
  }
}

TEST_F(TokenCacheTest, BadRowsAreRememberedAndStillRefusedOrNamed) {
  options_.skip_bad_rows = true;
  const std::string content = "{\"text\": \"ab\"}\n{\"text\": 5}\n{\"input_ids\": [1]}\n";
  load(content);
  testing::internal::CaptureStderr();
  load(content);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("rows.jsonl:2: text is 5"), HasSubstr("rows.jsonl:3")));
  options_.skip_bad_rows = false;
  EXPECT_EQ(error_of(content), "rows.jsonl:2: text is 5; expected a string");
}

TEST_F(TokenCacheTest, ARefusedFileLeavesNoCache) {
  EXPECT_NE(error_of("{\"text\": \"ab\"}\n{\"text\": 5}\n"), "no error");
  EXPECT_THAT(cache_files(), IsEmpty());
}

TEST_F(TokenCacheTest, AFolderThatCannotBeWrittenCostsAWarning) {
  options_.cache_folder = write("a_file", "") + "/below";
  testing::internal::CaptureStderr();
  EXPECT_EQ(load("{\"text\": \"ab\"}\n").num_rows(), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("heddle: warning: "), HasSubstr("stay in memory")));
}

}  // namespace
}  // namespace heddle
