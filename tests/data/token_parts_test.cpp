#include "data/token_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/dataset_file.h"
#include "data_folder.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr int kRows = 40;

class TokenPartsTest : public DataFolder {
 protected:
  void SetUp() override {
    DataFolder::SetUp();
    std::string rows;
    for (int row = 0; row < kRows; ++row)
      rows += row == 30 ? R"({"input_ids": [1, "x"]})"
                          "\n"
                        : fmt::format("{{\"input_ids\": [{}, 7, {}], \"labels\": [-100, {}, 5]}}\n", row, row + 1, row);
    std::ofstream(path()) << rows;
    options_.cache_folder = folder_ / "cache";
    options_.rules.vocab_size = 100;
    options_.part_bytes = 300;  // some seven rows
  }

  std::string path() const { return (folder_ / "rows.jsonl").string(); }

  TokenTable load(bool skip_bad_rows) {
    options_.skip_bad_rows = skip_bad_rows;
    return load_data_file(path(), options_);
  }
  /// Stops at the bad row, as a kill would there.
  void be_interrupted() { EXPECT_THROW(load(false), Error); }

  std::vector<fs::path> files(const char* extension) const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(options_.cache_folder)) {
      if (entry.path().extension() == extension) found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  static std::string text_of(const TokenTable& table) {
    std::string text;
    for (std::int64_t i = 0; i < table.num_rows(); ++i) {
      const TokenRow row = table.row(i);
      std::vector<std::int32_t> ids(static_cast<std::size_t>(row.length)), labels(ids.size());
      table.read_ids(row, 0, ids);
      table.read_labels(row, 0, labels);
      text += fmt::format("{} {} {}: {} / {}\n", row.line, row.targets, row.stream_start, fmt::join(ids, " "),
                          fmt::join(labels, " "));
    }
    const TableNotes& notes = table.notes();
    for (const auto& [line, reason] : notes.bad_rows) text += fmt::format("bad {} {}\n", line, reason);
    for (const auto& [format, rows] : notes.formats) text += fmt::format("{} {}\n", rows, format);
    return text + fmt::format("{} records\n", notes.records);
  }
  std::string without_parts() {
    DataFileOptions options = options_;
    options.cache_folder.clear();
    options.skip_bad_rows = true;
    return text_of(load_data_file(path(), options));
  }

  DataFileOptions options_;  // of the file alone
};

TEST_F(TokenPartsTest, AnInterruptedFileGoesOnToTheSameTable) {
  be_interrupted();
  EXPECT_EQ(files(".part").size(), 4u);  // of 30 sound rows
  EXPECT_EQ(text_of(load(true)), without_parts());
  EXPECT_TRUE(files(".part").empty());
  EXPECT_EQ(files(".tokens").size(), 1u);
}

TEST_F(TokenPartsTest, PartsAreTakenAsTheyAre) {
  load(true);
  const fs::path cache = files(".tokens").at(0);
  fs::remove(cache);
  TokenParts parts(cache, cache.stem().string(), options_.part_bytes);
  const std::vector<std::int32_t> ids = {9, 8, 7, 6};
  parts.under_way().append(RowKind::ids, 1, ids, ids);
  parts.under_way().notes().records = 38;
  parts.add_text(options_.part_bytes);
  EXPECT_EQ(text_of(load(true)),
            "1 3 0: 9 8 7 6 / 9 8 7 6\n"
            "39 2 0: 38 7 39 / -100 38 5\n"
            "40 2 0: 39 7 40 / -100 39 5\n"
            "2 token ids\n"
            "40 records\n");
}

TEST_F(TokenPartsTest, ADamagedPartAndWhatFollowsItAreMadeAgain) {
  be_interrupted();
  std::fstream(files(".part").at(1), std::ios::in | std::ios::out | std::ios::binary).seekp(150).put('\x55');
  EXPECT_EQ(text_of(load(true)), without_parts());
  EXPECT_TRUE(files(".part").empty());
}

TEST_F(TokenPartsTest, ABadRowOfAPartIsAnErrorWhereNoneMayBe) {
  load(true);
  const fs::path cache = files(".tokens").at(0);
  fs::remove(cache);
  TokenParts parts(cache, cache.stem().string(), options_.part_bytes);
  parts.under_way().notes().bad_rows.push_back({31, "as it was found"});
  parts.add_text(options_.part_bytes);
  try {
    load(false);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(), path() + ":31: as it was found");
  }
}

TEST_F(TokenPartsTest, PartsThatNobodyComesBackForAreRemoved) {
  be_interrupted();
  const auto parts = files(".part");
  fs::last_write_time(parts.at(2), fs::file_time_type::clock::now() - std::chrono::hours(24 * 8));
  TokenParts::remove_old(options_.cache_folder);
  EXPECT_EQ(files(".part").size(), parts.size() - 1);
}

}  // namespace
}  // namespace heddle
