#include "checkpoint/checkpoint_weights.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <numeric>

#include "base/error.h"
#include "checkpoint/save.h"
#include "comm/job.h"

namespace heddle {
namespace {

class CheckpointWeightsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "heddle-weights-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    std::iota(values_.begin(), values_.end(), 1.0f);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// A tensor of 6 x 7 in two pieces, its moments, and a vector.
  CheckpointWeights open() {
    const auto part = [&](std::size_t begin, std::size_t end) {
      return std::as_bytes(std::span(values_).subspan(begin, end - begin));
    };
    std::filesystem::path path;
    run_ranks(2, [&](Communicator& communicator) {
      const std::size_t begin = communicator.rank() == 0 ? 0 : 17, end = communicator.rank() == 0 ? 17 : 42;
      const auto first = static_cast<std::int64_t>(begin), last = static_cast<std::int64_t>(end);
      std::vector<CheckpointPiece> pieces = {{"weights/a", DType::f32, {6, 7}, first, last, part(begin, end)},
                                             {"exp_avg/a", DType::f32, {6, 7}, first, last, part(begin, end)}};
      if (communicator.rank() == 0) pieces.push_back({"weights/b", DType::f32, {3}, 0, 3, part(10, 13)});
      const auto written = save_checkpoint(folder_, 1, pieces, Json::object(), {}, communicator);
      if (communicator.rank() == 0) path = written;
      return 0;
    });
    return CheckpointWeights(Checkpoint(path));
  }

  std::filesystem::path folder_;
  std::vector<float> values_ = std::vector<float>(42);
};

TEST_F(CheckpointWeightsTest, ListsWeightsByTheModelsNamesAndNoMoments) {
  const CheckpointWeights weights = open();
  std::vector<std::string> names;
  for (const StoredTensor* tensor : weights.tensors()) names.push_back(tensor->name);
  EXPECT_THAT(names, testing::ElementsAre("a", "b"));
  EXPECT_THAT(weights.find("a")->shape, testing::ElementsAre(6, 7));
  EXPECT_EQ(weights.find("a")->dtype, DType::f32);
  EXPECT_EQ(weights.find("a")->bytes(), 42 * sizeof(float));
  EXPECT_EQ(weights.find("exp_avg/a"), nullptr);
  EXPECT_TRUE(weights.weight_map().empty());
}

TEST_F(CheckpointWeightsTest, ReadsRangesAcrossPieces) {
  const CheckpointWeights weights = open();
  std::vector<float> read(20);
  weights.read(*weights.find("a"), 10 * sizeof(float), std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, std::vector<float>(values_.begin() + 10, values_.begin() + 30));
}

}  // namespace
}  // namespace heddle
