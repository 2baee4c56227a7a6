// early_stopping_patience and load_best_model_at_end on runs that overfit: ids are random but not equally frequent, so
// that the loss of other rows than those trained on falls while the frequencies are learnt, and then rises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "checkpoint/save.h"
#include "small_run.h"
#include "train/checkpoint_export.h"
#include "train/trainer.h"

namespace heddle::endtoend {
namespace {

namespace fs = std::filesystem;

/// Ids that are the least of four draws.
void write_random_rows(const fs::path& path, int rows, std::uint32_t state) {
  std::ofstream file(path);
  for (int row = 0; row < rows; ++row) {
    Json ids = Json::array();
    for (int i = 0; i < 20; ++i) {
      std::uint32_t least = 95;
      for (int draw = 0; draw < 4; ++draw) {
        state = state * 1664525u + 1013904223u;
        least = std::min(least, (state >> 16) % 96);
      }
      ids.push_back(least);
    }
    file << Json{{"input_ids", ids}}.dump() << "\n";
  }
}

/// {step: eval_loss} of an output_dir.
std::map<std::int64_t, double> evaluations(const fs::path& folder) {
  std::ifstream file(folder / "metrics.jsonl");
  std::map<std::int64_t, double> losses;
  for (std::string line; std::getline(file, line);) {
    const Json row = parse_json(line, "metrics.jsonl");
    if (row.contains("eval_loss")) losses[row["step"].get<std::int64_t>()] = row["eval_loss"].get<double>();
  }
  return losses;
}

std::int64_t step_of_least(const std::map<std::int64_t, double>& losses) {
  return std::min_element(losses.begin(), losses.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

class BestModel : public testing::Test {
 protected:
  Json run(const std::string& name, const Json& changes) const {
    Json run = small_run(folder_.path(), llama_config(), name);
    write_random_rows(folder_.path() / "rows.jsonl", 8, 1);
    write_random_rows(folder_.path() / "validation.jsonl", 16, 2);
    run.update({{"validation_file", (folder_.path() / "validation.jsonl").string()},
                {"learning_rate", 2e-2},
                {"lr_scheduler_type", "constant"},
                {"max_steps", 40},
                {"eval_steps", 1},
                {"save_steps", 1},
                {"threads", 1},
                {"early_stopping_patience", 3},
                {"load_best_model_at_end", true}});
    if (!changes.is_null()) run.update(changes);
    return run;
  }
  fs::path train_as(const std::string& name, const Json& changes) const {
    EXPECT_EQ(train(run_file(run(name, changes))), 0);
    return folder_.path() / name;
  }
  /// The bytes of `file` when that step's checkpoint is exported.
  std::string exported(const fs::path& out, std::int64_t step, const std::string& file = "model.safetensors") const {
    const fs::path target = folder_.path() / "exported";
    fs::remove_all(target);
    const Checkpoint checkpoint(out / ("checkpoint-" + std::to_string(step)));
    file.starts_with("adapter") ? export_adapter(checkpoint.folder(), target) : export_checkpoint(checkpoint, target);
    return read_file(target / file);
  }

  TemporaryFolder folder_;
};

TEST_F(BestModel, TheRunStopsEarlyAndExportsTheWeightsOfTheBestEvaluation) {
  const fs::path out = train_as("out", {});
  const auto losses = evaluations(out);
  const std::int64_t best = step_of_least(losses), last = losses.rbegin()->first;
  ASSERT_LT(last, 40);
  ASSERT_GT(best, 1);
  EXPECT_EQ(last, best + 3);
  EXPECT_EQ(read_file(out / "model.safetensors"), exported(out, best));
  EXPECT_NE(read_file(out / "model.safetensors"), exported(out, last));

  // Started again, it is over and exports the same.
  const std::string model = read_file(out / "model.safetensors");
  fs::remove(out / "model.safetensors");
  EXPECT_EQ(evaluations(train_as("out", {})), losses);
  EXPECT_EQ(read_file(out / "model.safetensors"), model);
}

TEST_F(BestModel, WithoutItTheLastWeightsAreExported) {
  const fs::path out = train_as("out", {{"load_best_model_at_end", false}});
  const std::int64_t last = evaluations(out).rbegin()->first;
  ASSERT_LT(last, 40);
  EXPECT_EQ(read_file(out / "model.safetensors"), exported(out, last));
}

TEST_F(BestModel, TheBestOutlivesTheLimitAndLiesBetweenSaves) {
  const fs::path every = train_as("every", {{"max_steps", 12}, {"early_stopping_patience", 0}});
  const std::int64_t best = step_of_least(evaluations(every));
  ASSERT_LT(best, 10);
  ASSERT_NE(best % 5, 0);
  const fs::path out =
      train_as("out", {{"max_steps", 12}, {"early_stopping_patience", 0}, {"save_steps", 5}, {"save_total_limit", 1}});
  EXPECT_THAT(checkpoint_steps(out), testing::ElementsAre(12, best));
  EXPECT_EQ(read_file(out / "model.safetensors"), read_file(every / "model.safetensors"));
}

TEST_F(BestModel, EpochsMayDecideWhenToEvaluateAndToSave) {
  // 8 rows, 3 a step: epochs end with steps 3, 6, ...
  const Json by_epoch = {{"per_device_train_batch_size", 3},
                         {"gradient_accumulation_steps", 1},
                         {"eval_steps", 0},
                         {"eval_strategy", "epoch"},
                         {"save_steps", 0},
                         {"save_strategy", "epoch"},
                         {"early_stopping_patience", 0}};
  const auto with = [&](Json changes) {
    Json all = by_epoch;
    all.update(changes);
    return all;
  };
  const fs::path epochs = train_as("epochs", with({{"max_steps", -1}, {"num_train_epochs", 3}}));
  const auto losses = evaluations(epochs);
  ASSERT_EQ(losses.size(), 3u);
  EXPECT_TRUE(losses.contains(3) && losses.contains(6) && losses.contains(9));
  EXPECT_THAT(checkpoint_steps(epochs), testing::UnorderedElementsAre(3, 6, 9));
  EXPECT_EQ(read_file(epochs / "model.safetensors"), exported(epochs, step_of_least(losses)));

  const fs::path cut = train_as("cut", with({{"max_steps", 4}}));
  EXPECT_THAT(checkpoint_steps(cut), testing::UnorderedElementsAre(3, 4));
  EXPECT_EQ(evaluations(cut).size(), 2u);

  const fs::path best =
      train_as("best", with({{"max_steps", 24}, {"save_strategy", "best"}, {"load_best_model_at_end", false}}));
  std::vector<std::int64_t> new_bests;
  double least = INFINITY;
  for (const auto& [step, loss] : evaluations(best)) {
    if (loss < least) new_bests.push_back(step);
    least = std::min(least, loss);
  }
  ASSERT_LT(new_bests.size(), evaluations(best).size());
  EXPECT_THAT(checkpoint_steps(best), testing::UnorderedElementsAreArray(new_bests));
}

TEST_F(BestModel, AResumedRunStopsAtTheSameStepWithTheSameBits) {
  const fs::path straight = train_as("straight", {});
  const auto losses = evaluations(straight);
  const std::int64_t best = step_of_least(losses);
  for (const std::int64_t stop : {best - 1, best, best + 1}) {  // the last: one evaluation without a new best so far
    const std::string name = "parts" + std::to_string(stop);
    train_as(name, {{"max_steps", stop}});
    const fs::path parts = train_as(name, {});
    EXPECT_EQ(evaluations(parts), losses) << stop;
    EXPECT_EQ(read_file(parts / "model.safetensors"), read_file(straight / "model.safetensors")) << stop;
  }
}

TEST_F(BestModel, RanksDecideAlikeAtEveryStage) {
  const fs::path one = train_as("one", {{"bf16", true}});
  for (const int stage : {0, 3}) {
    const fs::path two =
        train_as("two" + std::to_string(stage),
                 {{"bf16", true}, {"ranks", 2}, {"zero_stage", stage}, {"gradient_accumulation_steps", 1}});
    EXPECT_EQ(evaluations(two), evaluations(one)) << stage;
    EXPECT_EQ(read_file(two / "model.safetensors"), read_file(one / "model.safetensors")) << stage;
  }
}

TEST_F(BestModel, WhatIsOffloadedComesBackToo) {
  const fs::path held = train_as("held", {{"bf16", true}});
  const fs::path offloaded = train_as("offloaded", {{"bf16", true},
                                                    {"offload_optimizer", "nvme"},
                                                    {"offload_param", "cpu"},
                                                    {"nvme_path", folder_.path().string()}});
  EXPECT_EQ(evaluations(offloaded), evaluations(held));
  EXPECT_EQ(read_file(offloaded / "model.safetensors"), read_file(held / "model.safetensors"));
}

TEST_F(BestModel, AnAdapterIsThatOfTheBestEvaluationToo) {
  const fs::path out = train_as("out", {{"lora", {{"r", 4}, {"lora_alpha", 64}, {"target_modules", "all-linear"}}}});
  const auto losses = evaluations(out);
  const std::int64_t best = step_of_least(losses), last = losses.rbegin()->first;
  ASSERT_LT(best, last);
  const std::string adapter = read_file(out / "adapter_model.safetensors");
  EXPECT_EQ(adapter, exported(out, best, "adapter_model.safetensors"));
  EXPECT_NE(adapter, exported(out, last, "adapter_model.safetensors"));
}

TEST_F(BestModel, InAnotherFolderTheBestCountsFromThereOn) {
  const fs::path first = train_as("first", {{"max_steps", 12}, {"early_stopping_patience", 0}});
  ASSERT_LT(step_of_least(evaluations(first)), 10);
  const fs::path second = train_as("second", {{"max_steps", 14},
                                              {"early_stopping_patience", 0},
                                              {"resume_from_checkpoint", (first / "checkpoint-10").string()}});
  const auto losses = evaluations(second);
  ASSERT_EQ(losses.begin()->first, 11);
  EXPECT_EQ(read_file(second / "model.safetensors"), exported(second, step_of_least(losses)));
}

TEST_F(BestModel, WithoutValidationRowsItIsRefused) {
  Json without = run("out", {});
  without.erase("validation_file");
  EXPECT_THAT([&] { train(run_file(without)); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("validation_file is missing")));
}

}  // namespace
}  // namespace heddle::endtoend
