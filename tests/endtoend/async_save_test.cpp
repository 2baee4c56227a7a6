// save_async changes when a checkpoint is written, not what is in it, nor what is computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "checkpoint/save.h"
#include "small_run.h"
#include "train/trainer.h"

namespace heddle::endtoend {
namespace {

namespace fs = std::filesystem;

class AsyncSave : public testing::TestWithParam<const char*> {
 protected:
  Json run(const std::string& name, const Json& changes = {}) const {
    Json run = small_run(folder_.path(), llama_config(), name);
    run.update({{"threads", 1},
                {"save_steps", 1},
                {"lr_scheduler_type", "constant"},
                {"max_steps", 4},
                {"nvme_path", folder_.path().string()}});
    run.update(parse_json(GetParam(), "changes"));
    if (!changes.is_null()) run.update(changes);
    return run;
  }
  fs::path train_to(const std::string& name, const Json& changes = {}) const {
    EXPECT_EQ(train(run_file(run(name, changes))), 0);
    const fs::path out = folder_.path() / name;
    EXPECT_EQ(read_file(out / "plan.json"), read_file(out / "memory.json"));
    return out;
  }

  TemporaryFolder folder_;
};

/// {name: content} of the state files of a checkpoint.
std::map<std::string, std::string> state_files(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("state-")) files[name] = read_file(entry.path());
  }
  return files;
}

TEST_P(AsyncSave, HoldsTheBitsOfAStepThatIsOver) {
  const fs::path at_once = train_to("at-once"), meanwhile = train_to("meanwhile", {{"save_async", true}});
  EXPECT_EQ(trajectory(meanwhile), trajectory(at_once));
  EXPECT_EQ(read_file(meanwhile / "model.safetensors"), read_file(at_once / "model.safetensors"));
  EXPECT_THAT(checkpoint_steps(meanwhile), testing::ElementsAre(4, 3, 2, 1));
  for (const auto step : checkpoint_steps(at_once)) {
    const std::string name = fmt::format("checkpoint-{}", step);
    const auto files = state_files(at_once / name);
    EXPECT_FALSE(files.empty());
    EXPECT_TRUE(state_files(meanwhile / name) == files) << name;
    EXPECT_EQ(Checkpoint(meanwhile / name).state(), Checkpoint(at_once / name).state()) << name;
  }
}

TEST_P(AsyncSave, OldOnesGoAndARunGoesOn) {
  const fs::path straight = train_to("straight", {{"save_steps", 0}});
  const fs::path out = train_to("stopped", {{"save_async", true}, {"save_total_limit", 2}, {"max_steps", 3}});
  EXPECT_THAT(checkpoint_steps(out), testing::ElementsAre(3, 2));
  train_to("stopped", {{"save_async", true}, {"save_total_limit", 2}});
  EXPECT_THAT(checkpoint_steps(out), testing::ElementsAre(4, 3));
  EXPECT_EQ(trajectory(out), trajectory(straight));
  for (const auto& entry : fs::directory_iterator(out)) EXPECT_NE(entry.path().extension(), ".partial");
}

TEST_P(AsyncSave, AFailureIsThatOfTheRun) {
  const fs::path out = folder_.path() / "out";
  fs::create_directory(out);
  std::ofstream(out / "checkpoint-2") << "in the way";
  EXPECT_THAT(
      [&] {
        train(run_file(run("out", {{"save_async", true}})));
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("checkpoint-2")));
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, AsyncSave,
    testing::Values("{}", R"({"bf16": true, "ranks": 2, "zero_stage": 1})",
                    R"({"ranks": 3, "zero_stage": 3, "offload_optimizer": "nvme", "save_compression": "zstd"})",
                    R"({"optim": "adafactor", "offload_optimizer": "cpu"})"));

}  // namespace
}  // namespace heddle::endtoend
