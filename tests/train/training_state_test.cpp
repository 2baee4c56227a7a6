#include "train/training_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "comm/job.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::ThrowsMessage;

class DataPosition : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "heddle-state-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// A checkpoint at that step of a schedule over the data.
  Checkpoint saved(std::int64_t schedule_step, const DataOrder& data, const BestEvaluation& best = {},
                   const std::string& left_out = "") {
    TrainingState state;
    state.step = state.schedule_step = schedule_step;
    state.updates = schedule_step - 1;
    state.micro_batches = 17;
    state.loss_scaler = {.scale = 1024};
    state.best = best;
    Json document = state_document(state, data);
    document.erase(left_out);
    const std::vector<float> values(1);
    const std::vector<CheckpointPiece> pieces = {
        {"weights/a", DType::f32, {1}, 0, 1, std::as_bytes(std::span(values))}};
    const auto group = alone();
    return Checkpoint(save_checkpoint(folder_, schedule_step, pieces, document, {}, *group));
  }

  static DataOrder order(std::int64_t rows, std::int64_t rows_per_step) {
    return {.rows = rows, .rows_per_step = rows_per_step, .is_shuffled = true, .seed = 3, .digest = "d"};
  }

  fs::path folder_;
};

TEST_F(DataPosition, TheStateComesBack) {
  const auto state = read_state(saved(5, order(30, 4)), order(30, 4));
  EXPECT_EQ(state.step, 5);
  EXPECT_EQ(state.updates, 4);
  EXPECT_EQ(state.schedule_step, 5);
  EXPECT_EQ(state.micro_batches, 17);
  EXPECT_EQ(state.loss_scaler, (LossScaler::State{.scale = 1024}));
}

TEST_F(DataPosition, TheBestEvaluationComesBackToTheBit) {
  const BestEvaluation best = {.step = 4, .loss = 0.1 + 0.2, .evaluations_since = 1};
  EXPECT_EQ(read_state(saved(5, order(30, 4), best), order(30, 4)).best, best);
  const BestEvaluation none = {.evaluations_since = 2};  // two whose loss was not finite
  EXPECT_EQ(read_state(saved(6, order(30, 4), none), order(30, 4)).best, none);
}

TEST_F(DataPosition, ACheckpointThatKnowsNoBestEvaluationLoads) {
  const Checkpoint checkpoint = saved(5, order(30, 4), {.step = 4, .loss = 1}, "best_evaluation");
  EXPECT_EQ(read_state(checkpoint, order(30, 4)).best, BestEvaluation());
}

// 30 rows in steps of 4: an epoch has 8 steps, the last of 2 rows.
TEST_F(DataPosition, StepsOfOtherSizesGoOnAtTheSameRow) {
  EXPECT_EQ(read_state(saved(6, order(30, 4)), order(30, 8)).schedule_step, 3);       // row 24 of epoch 0
  EXPECT_EQ(read_state(saved(8 + 4, order(30, 4)), order(30, 16)).schedule_step, 3);  // row 16 of epoch 1: 2 steps, 1
  EXPECT_EQ(read_state(saved(16, order(30, 4)), order(30, 7)).schedule_step, 10);     // epoch 2 begins: 5 steps each
  EXPECT_EQ(read_state(saved(16, order(30, 4)), order(30, 4)).step, 16);
}

TEST_F(DataPosition, StepsThatWouldUseRowsTwiceOrNeverAreRefused) {
  const Checkpoint checkpoint = saved(5, order(30, 4));
  EXPECT_THAT([&] { read_state(checkpoint, order(30, 8)); },
              ThrowsMessage<Error>(testing::AllOf(HasSubstr("checkpoint-5"), HasSubstr("20 rows"))));
}

TEST_F(DataPosition, OtherDataOrAnotherOrderIsRefusedByName) {
  const Checkpoint checkpoint = saved(5, order(30, 4));
  const auto refuses = [&](DataOrder data, const std::string& text) {
    EXPECT_THAT([&] { read_state(checkpoint, data); },
                ThrowsMessage<Error>(testing::AllOf(HasSubstr("checkpoint-5"), HasSubstr(text))));
  };
  refuses(order(31, 4), "30 training rows");
  DataOrder other = order(30, 4);
  other.digest = "e";
  refuses(other, "others");
  other = order(30, 4);
  other.seed = 4;
  refuses(other, "seed: 3");
  other = order(30, 4);
  other.is_shuffled = false;
  refuses(other, "shuffle: true");
}

TEST_F(DataPosition, TheSeedDoesNotMatterInFileOrder) {
  DataOrder data = order(30, 4);
  data.is_shuffled = false;
  const Checkpoint checkpoint = saved(5, data);
  data.seed = 4;
  EXPECT_EQ(read_state(checkpoint, data).schedule_step, 5);
}

class DataDigest : public DataPosition {
 protected:
  std::string digest(const std::vector<std::vector<int>>& rows) {
    const fs::path path = folder_ / "rows.jsonl";
    std::ofstream file(path);
    for (const auto& row : rows) file << Json{{"input_ids", row}}.dump() << "\n";
    file.close();
    DatasetOptions options;
    options.files = {{path.string(), 1.0}};
    options.vocab_size = 100;
    const Dataset dataset = Dataset::load(options, nullptr);
    const RunConfig run;  // as a temporary g++ 12 believes it uninitialized
    return data_order(dataset, run, 2).digest;
  }
};

TEST_F(DataDigest, TellsDataApart) {
  const std::string reference = digest({{1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10}});
  EXPECT_EQ(digest({{1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10}}), reference);
  EXPECT_NE(digest({{1, 2, 3}, {4, 5, 6, 8}, {8, 9, 10}}), reference);          // an id
  EXPECT_NE(digest({{4, 5, 6, 7}, {1, 2, 3}, {8, 9, 10}}), reference);          // the order
  EXPECT_NE(digest({{1, 2, 3}, {4, 5, 6, 7, 8}, {8, 9, 10}}), reference);       // a length
  EXPECT_NE(digest({{1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10}, {1, 2}}), reference);  // a row more
}

}  // namespace
}  // namespace heddle
