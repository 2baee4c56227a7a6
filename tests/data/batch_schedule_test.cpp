#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/permutation.h"
#include "data_folder.h"

namespace heddle {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

class BatchScheduleTest : public DataFolder {
 protected:
  /// Rows of two ids; the first is the row's number.
  Dataset numbered(int rows) {
    options_.vocab_size = 1000;
    std::string content;
    for (int i = 0; i < rows; ++i) content += "{\"input_ids\": [" + std::to_string(i) + ", 0]}\n";
    return load(content);
  }
  /// Numbers of the rows of each micro-batch.
  static std::vector<std::vector<std::int32_t>> rows_of(const StepBatch& step) {
    std::vector<std::vector<std::int32_t>> out;
    for (const auto& micro : step.micro_batches) out.push_back(micro.input_ids);
    return out;
  }
  static std::vector<std::int32_t> all_rows_of(const StepBatch& step) {
    std::vector<std::int32_t> out;
    for (const auto& micro : step.micro_batches) out.insert(out.end(), micro.input_ids.begin(), micro.input_ids.end());
    return out;
  }
};

TEST_F(BatchScheduleTest, FileOrderInConsecutiveRunsAndTheLastStepTakesWhatIsLeft) {
  const Dataset data = numbered(11);
  const BatchSchedule schedule(data, {false, 1, 2, 2});
  EXPECT_EQ(schedule.steps_per_epoch(), 3);
  EXPECT_THAT(rows_of(schedule.step(0)), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(rows_of(schedule.step(1)), ElementsAre(ElementsAre(4, 5), ElementsAre(6, 7)));
  EXPECT_THAT(rows_of(schedule.step(2)), ElementsAre(ElementsAre(8, 9), ElementsAre(10)));
  EXPECT_THAT(rows_of(schedule.step(3)), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
}

TEST_F(BatchScheduleTest, TheEpochIsThatOfHuggingFacesLogs) {
  const Dataset data = numbered(10);
  const BatchSchedule schedule(data, {false, 1, 2, 2});
  EXPECT_EQ(schedule.step(0).epoch, 1.0 / 3);
  EXPECT_EQ(schedule.step(2).epoch, 1.0);
  EXPECT_EQ(schedule.step(3).epoch, 1 + 1.0 / 3);
  EXPECT_EQ(schedule.step(5).epoch, 2.0);
}

TEST_F(BatchScheduleTest, AccumulationDoesNotChangeTheRowsOfAStep) {
  const Dataset data = numbered(37);
  for (const bool shuffle : {false, true}) {
    const BatchSchedule whole(data, {shuffle, 7, 8, 1});
    for (const std::int64_t micro : {4, 2, 1}) {
      const BatchSchedule parts(data, {shuffle, 7, micro, 8 / micro});
      for (std::int64_t k = 0; k < 12; ++k) {
        EXPECT_EQ(all_rows_of(parts.step(k)), all_rows_of(whole.step(k)));
        EXPECT_EQ(parts.step(k).supervised_tokens, whole.step(k).supervised_tokens);
      }
    }
  }
}

TEST_F(BatchScheduleTest, AShuffledEpochHasEveryRowOnce) {
  const Dataset data = numbered(23);
  const BatchSchedule schedule(data, {true, 3, 2, 3});
  std::vector<std::vector<std::int32_t>> epochs;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<std::int32_t> rows;
    for (std::int64_t k = 0; k < schedule.steps_per_epoch(); ++k) {
      const auto more = all_rows_of(schedule.step(epoch * schedule.steps_per_epoch() + k));
      rows.insert(rows.end(), more.begin(), more.end());
    }
    epochs.push_back(rows);
    std::sort(rows.begin(), rows.end());
    std::vector<std::int32_t> expected(23);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(rows, expected);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  EXPECT_NE(all_rows_of(BatchSchedule(data, {true, 4, 2, 3}).step(0)), all_rows_of(schedule.step(0)));
  EXPECT_EQ(all_rows_of(BatchSchedule(data, {true, 3, 2, 3}).step(9)), all_rows_of(schedule.step(9)));
}

TEST_F(BatchScheduleTest, AnyStepIsReachedAtOnce) {
  const Dataset data = numbered(23);
  const BatchSchedule schedule(data, {true, 3, 2, 3});
  EXPECT_EQ(schedule.step(INT64_C(4'000'000'000'000'000)).micro_batches.size(), 3u);
}

TEST_F(BatchScheduleTest, CapacitiesAreTheSumsOverTheLongestRows) {
  options_.max_length = 20;
  const Dataset data =
      load("{\"text\": \"abc\"}\n{\"text\": \"abcdefghi\"}\n{\"text\": \"a\"}\n{\"text\": \"abcdef\"}\n");
  EXPECT_EQ(BatchSchedule(data, {true, 1, 1, 4}).token_capacity(), 9);
  EXPECT_EQ(BatchSchedule(data, {true, 1, 2, 1}).token_capacity(), 15);
  EXPECT_EQ(BatchSchedule(data, {true, 1, 3, 1}).token_capacity(), 18);
  EXPECT_EQ(BatchSchedule(data, {true, 1, 3, 1}).document_capacity(), 3);
  EXPECT_EQ(BatchSchedule(data, {true, 1, 9, 1}).token_capacity(), 19);
  options_.packing = true;  // 19 targets: a$ ends in the first row of 12, the second has 1 + 6
  options_.max_length = 12;
  const Dataset packed =
      load("{\"text\": \"abc\"}\n{\"text\": \"abcdefghi\"}\n{\"text\": \"a\"}\n{\"text\": \"abcdef\"}\n");
  EXPECT_EQ(BatchSchedule(packed, {true, 1, 1, 1}).token_capacity(), 12);
  EXPECT_EQ(BatchSchedule(packed, {true, 1, 1, 1}).document_capacity(), 2);
  EXPECT_EQ(BatchSchedule(packed, {true, 1, 2, 1}).document_capacity(), 4);
}

TEST_F(BatchScheduleTest, NoMicroBatchExceedsTheCapacities) {
  options_.packing = true;
  options_.max_length = 9;
  std::string content;
  for (int i = 0; i < 40; ++i)
    content += "{\"text\": \"" + std::string(static_cast<std::size_t>(i * 7 % 13), 'a') + "\"}\n";
  const Dataset data = load(content);
  const BatchSchedule schedule(data, {true, 1, 3, 2});
  for (std::int64_t k = 0; k < 50; ++k) {
    const StepBatch step = schedule.step(k);
    std::int64_t tokens = 0;
    for (const auto& micro : step.micro_batches) {
      EXPECT_LE(micro.tokens(), schedule.token_capacity());
      EXPECT_LE(static_cast<std::int64_t>(micro.document_starts.size()) - 1, schedule.document_capacity());
      tokens += micro.tokens();
    }
    EXPECT_EQ(step.tokens, tokens);
    EXPECT_EQ(step.supervised_tokens, tokens);
  }
}

TEST_F(BatchScheduleTest, ABatchIsFilledAgainInTheSameMemory) {
  const Dataset data = numbered(23);
  const BatchSchedule schedule(data, {true, 3, 2, 3});
  StepBatch batch;
  schedule.step(0, batch);
  const auto* memory = batch.micro_batches[0].input_ids.data();
  for (std::int64_t k = 1; k < 9; ++k) {
    schedule.step(k, batch);
    EXPECT_EQ(batch.micro_batches[0].input_ids.data(), memory);
    EXPECT_EQ(rows_of(batch), rows_of(schedule.step(k)));
    EXPECT_EQ(batch.supervised_tokens, schedule.step(k).supervised_tokens);
  }
}

TEST_F(BatchScheduleTest, AbsurdSizesDoNotOverflow) {
  const Dataset data = numbered(5);
  const BatchSchedule schedule(data, {true, 1, INT64_C(1) << 62, INT64_C(1) << 62});
  EXPECT_EQ(schedule.steps_per_epoch(), 1);
  EXPECT_EQ(schedule.token_capacity(), 5);
  EXPECT_THROW(BatchSchedule(data, {true, 1, 0, 1}), Error);
  EXPECT_THROW(BatchSchedule(data, {true, 1, 1, 0}), Error);
}

TEST(Permutation, HitsEveryPlaceOnce) {
  for (const std::int64_t size : {1, 2, 3, 4, 5, 7, 8, 9, 100, 1023, 1024, 1025, 20000}) {
    const Permutation permutation(size, 42, 3);
    std::vector<bool> seen(static_cast<std::size_t>(size), false);
    for (std::int64_t i = 0; i < size; ++i) {
      const auto at = permutation(i);
      ASSERT_TRUE(at >= 0 && at < size);
      ASSERT_FALSE(seen[static_cast<std::size_t>(at)]) << size;
      seen[static_cast<std::size_t>(at)] = true;
    }
  }
  const std::int64_t huge = INT64_C(1) << 61;
  const Permutation permutation(huge, 42, 3);
  EXPECT_NE(permutation(0), permutation(huge - 1));
  EXPECT_LT(permutation(huge - 1), huge);
}

// Chi-squared over the 24 orders of 4 rows: 23 degrees of freedom, mean 23, deviation sqrt(46); p = 1e-4 lies at 54.
TEST(Permutation, AllOrdersAreEquallyLikely) {
  for (const bool over_seeds : {false, true}) {
    std::map<std::vector<std::int64_t>, int> counts;
    constexpr int kDraws = 24000;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const Permutation permutation(4, over_seeds ? i : 42, over_seeds ? 0 : i);
      ++counts[{permutation(0), permutation(1), permutation(2), permutation(3)}];
    }
    ASSERT_EQ(counts.size(), 24u);
    double chi_squared = 0;
    for (const auto& [order, count] : counts) chi_squared += (count - 1000.0) * (count - 1000.0) / 1000.0;
    EXPECT_LT(chi_squared, 54);
    EXPECT_GT(chi_squared, 5);  // p = 1e-4 below: more even than chance
  }
}

// Each row is as often in each place. 50 * 50 cells of mean 40, 49 * 49 degrees of freedom: mean 2401, deviation 69.
TEST(Permutation, EveryRowIsEverywhereEquallyOften) {
  constexpr std::size_t kSize = 50, kEpochs = 2000;
  std::vector<int> counts(kSize * kSize, 0);
  for (std::size_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Permutation permutation(kSize, 7, epoch);
    for (std::size_t i = 0; i < kSize; ++i)
      ++counts[i * kSize + static_cast<std::size_t>(permutation(static_cast<std::int64_t>(i)))];
  }
  constexpr double kMean = static_cast<double>(kEpochs) / kSize;
  double chi_squared = 0;
  for (const int count : counts) chi_squared += (count - kMean) * (count - kMean) / kMean;
  EXPECT_NEAR(chi_squared, 2401, 4 * 69);
}

// Neighbours in the file are not neighbours in the epoch: their distance has the mean of random pairs, (n + 1) / 3.
TEST(Permutation, NeighboursPart) {
  constexpr std::int64_t kSize = 10000;
  const Permutation permutation(kSize, 1, 0);
  double sum = 0;
  std::int64_t fixed = 0;
  for (std::int64_t i = 0; i + 1 < kSize; ++i) {
    sum += static_cast<double>(std::abs(permutation(i + 1) - permutation(i)));
    fixed += permutation(i) == i ? 1 : 0;
  }
  // The distance's deviation is n / sqrt(18) for one pair, so 24 for the mean of 9999; five of them.
  EXPECT_NEAR(sum / (kSize - 1), (kSize + 1) / 3.0, 120);
  EXPECT_LE(fixed, 8);  // Poisson of mean 1: more than 8 has p = 1e-6
}

}  // namespace
}  // namespace heddle
