#include <gtest/gtest.h>

#include "checkpoint/save.h"
#include "comm/job.h"
#include "small_run.h"
#include "train/trainer.h"

namespace heddle::endtoend {
namespace {

struct Outcome {
  std::string losses, weights;
  bool operator==(const Outcome&) const = default;
};

Outcome train_once(const std::filesystem::path& folder, const Json& config, const std::string& name,
                   const Json& changes) {
  Json run = small_run(folder, config, name);
  if (!changes.is_null()) run.update(changes);
  EXPECT_EQ(train(run_file(run)), 0);
  return {trajectory(folder / name), read_file(folder / name / "model.safetensors")};
}

class Training : public testing::TestWithParam<const char*> {
 protected:
  Json config() const { return GetParam() == std::string("gpt2") ? gpt2_config() : llama_config(); }
  TemporaryFolder folder_;
};

TEST_P(Training, IsTheSameToTheBitOverThreads) {
  const Outcome reference = train_once(folder_.path(), config(), "threads1", {{"threads", 1}});
  EXPECT_FALSE(reference.losses.empty());
  for (int threads = 2; threads <= 4; ++threads) {
    EXPECT_EQ(train_once(folder_.path(), config(), "threads" + std::to_string(threads), {{"threads", threads}}),
              reference);
  }
}

TEST_P(Training, IsTheSameToTheBitOverRecomputation) {
  for (const char* precision : {"", "bf16", "fp16"}) {
    Json changes = *precision == '\0' ? Json::object() : Json{{precision, true}};
    const std::string name(precision);
    const Outcome reference = train_once(folder_.path(), config(), "none" + name, changes);
    for (const char* mode : {"selective", "full"}) {
      changes["recompute"] = mode;
      EXPECT_EQ(train_once(folder_.path(), config(), mode + name, changes), reference) << mode << " " << precision;
    }
  }
}

TEST_P(Training, HoldsWhatWasPlannedToTheByte) {
  for (const char* mode : {"none", "selective", "full"}) {
    train_once(folder_.path(), config(), mode, {{"recompute", mode}, {"bf16", true}});
    EXPECT_EQ(read_file(folder_.path() / mode / "plan.json"), read_file(folder_.path() / mode / "memory.json")) << mode;
  }
}

TEST_P(Training, GoesOnFromACheckpointToTheSameBits) {
  for (const char* precision : {"", "bf16", "fp16"}) {
    const Json changes = *precision == '\0' ? Json::object() : Json{{precision, true}};
    const std::string name(precision);
    const Outcome reference = train_once(folder_.path(), config(), "whole" + name, changes);
    Json stopped = changes;
    stopped.update({{"max_steps", 3}, {"save_steps", 3}, {"lr_scheduler_type", "constant"}});
    Json whole = changes;
    whole.update({{"max_steps", 6}, {"save_steps", 6}, {"lr_scheduler_type", "constant"}});
    const Outcome straight = train_once(folder_.path(), config(), "straight" + name, whole);
    train_once(folder_.path(), config(), "parts" + name, stopped);
    EXPECT_EQ(train_once(folder_.path(), config(), "parts" + name, whole), straight) << precision;
    EXPECT_NE(straight.losses, reference.losses) << "another schedule gives other losses";
  }
}

TEST_P(Training, FallsBackToTheCheckpointBeforeADamagedOne) {
  const Json changes = {{"max_steps", 6}, {"save_steps", 2}};
  const Outcome reference = train_once(folder_.path(), config(), "run", changes);
  const auto damaged = folder_.path() / "run" / "checkpoint-6" / "state-00000.safetensors";
  std::string bytes = read_file(damaged);
  bytes[bytes.size() - 5] = static_cast<char>(bytes[bytes.size() - 5] ^ 1);
  std::ofstream(damaged, std::ios::binary) << bytes;
  EXPECT_EQ(newest_checkpoint(folder_.path() / "run", *alone())->step(), 4);
  EXPECT_EQ(train_once(folder_.path(), config(), "run", changes), reference);
}

INSTANTIATE_TEST_SUITE_P(Families, Training, testing::Values("llama", "gpt2"),
                         [](const auto& family) { return std::string(family.param); });

TEST(Training, ALearningRateOfZeroLeavesEveryByte) {
  const TemporaryFolder folder;
  train_once(folder.path(), llama_config(), "first", {});
  std::filesystem::create_directory(folder.path() / "model");
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(folder.path() / "first" / name, folder.path() / "model" / name);
  }
  for (const char* precision : {"", "bf16", "fp16"}) {
    Json run = small_run(folder.path(), llama_config(), std::string("still") + precision);
    run.erase("config_name");
    run["model_name_or_path"] = (folder.path() / "model").string();
    run["learning_rate"] = 0.0;
    run["weight_decay"] = 0.1;
    if (*precision != '\0') run[precision] = true;
    ASSERT_EQ(train(run_file(run)), 0);
    EXPECT_EQ(read_file(folder.path() / (std::string("still") + precision) / "model.safetensors"),
              read_file(folder.path() / "model" / "model.safetensors"))
        << precision;
  }
}

}  // namespace
}  // namespace heddle::endtoend
