#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

class CheckpointFolder : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "heddle-checkpoint-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    std::ofstream(folder_ / "config.json") << "{}";
  }
  void TearDown() override { fs::remove_all(folder_); }

  void save(std::int64_t step) {
    const std::array<CheckpointTensor, 2> tensors = {
        {{"weights/a", DType::f32, {2, 3}, std::as_bytes(std::span(values_))},
         {"exp_avg/a", DType::f32, {2, 3}, std::as_bytes(std::span(moments_))}}};
    const std::array<fs::path, 1> files = {folder_ / "config.json"};
    save_checkpoint(folder_, step, tensors, Json{{"step", step}}, files);
  }

  std::vector<float> read(const Checkpoint& checkpoint, const std::string& name) {
    std::vector<float> values(6);
    checkpoint.read(name, DType::f32, std::as_writable_bytes(std::span(values)));
    return values;
  }

  void flip_last_byte(const fs::path& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const char byte = static_cast<char>(file.get() ^ 1);
    file.seekp(-1, std::ios::end);
    file.put(byte);
  }

  fs::path folder_;
  std::vector<float> values_ = {1, 2, 3, 4, 5, 6}, moments_ = {-1, -2, -3, -4, -5, -6};
};

TEST_F(CheckpointFolder, ReadsBackWhatWasSaved) {
  save(7);
  const Checkpoint checkpoint(folder_ / "checkpoint-7");
  EXPECT_EQ(checkpoint.step(), 7);
  EXPECT_EQ(checkpoint.state()["step"], 7);
  EXPECT_EQ(read(checkpoint, "weights/a"), values_);
  EXPECT_EQ(read(checkpoint, "exp_avg/a"), moments_);
  EXPECT_TRUE(fs::exists(folder_ / "checkpoint-7" / "config.json"));
}

TEST_F(CheckpointFolder, NothingIsLeftBesideIt) {
  save(7);
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename().string());
  EXPECT_THAT(names, testing::UnorderedElementsAre("config.json", "checkpoint-7"));
}

TEST_F(CheckpointFolder, TheNewestIsFoundByNumberNotByName) {
  for (const std::int64_t step : {9, 10, 100}) save(step);
  fs::create_directory(folder_ / "checkpoint-abc");
  EXPECT_THAT(checkpoint_steps(folder_), testing::ElementsAre(100, 10, 9));
  EXPECT_EQ(newest_checkpoint(folder_)->step(), 100);
}

TEST_F(CheckpointFolder, ADamagedOneIsPassedOver) {
  for (const std::int64_t step : {1, 2, 3, 4}) save(step);
  flip_last_byte(folder_ / "checkpoint-4" / "state-00000.safetensors");
  fs::resize_file(folder_ / "checkpoint-3" / "state-00000.safetensors", 100);
  fs::remove(folder_ / "checkpoint-2" / "manifest.json");
  EXPECT_EQ(newest_checkpoint(folder_)->step(), 1);
}

TEST_F(CheckpointFolder, DamageIsNamed) {
  save(4);
  flip_last_byte(folder_ / "checkpoint-4" / "state-00000.safetensors");
  const Checkpoint checkpoint(folder_ / "checkpoint-4");
  EXPECT_THAT([&] { checkpoint.verify(); }, testing::ThrowsMessage<Error>(testing::AllOf(
                                                testing::HasSubstr("exp_avg/a"), testing::HasSubstr("checksum"))));
}

TEST_F(CheckpointFolder, AnotherShapeIsRefused) {
  save(1);
  const Checkpoint checkpoint(folder_ / "checkpoint-1");
  std::vector<float> values(5);
  EXPECT_THROW(checkpoint.read("weights/a", DType::f32, std::as_writable_bytes(std::span(values))), Error);
  EXPECT_THROW(checkpoint.read("weights/b", DType::f32, std::as_writable_bytes(std::span(values))), Error);
}

TEST_F(CheckpointFolder, OldOnesGoAndSoDoUnfinishedOnes) {
  for (const std::int64_t step : {1, 2, 3}) save(step);
  fs::create_directory(folder_ / ".checkpoint-4.partial");
  remove_old_checkpoints(folder_, 2);
  EXPECT_THAT(checkpoint_steps(folder_), testing::ElementsAre(3, 2));
  EXPECT_FALSE(fs::exists(folder_ / ".checkpoint-4.partial"));
}

TEST_F(CheckpointFolder, NoneIsNoError) { EXPECT_FALSE(newest_checkpoint(folder_).has_value()); }

}  // namespace
}  // namespace heddle
