// DPO: the loss of preference pairs is that of the paper at the start, and the same bits however a step is computed.
#include <gtest/gtest.h>

#include <cmath>

#include "monitor/metrics.h"
#include "small_run.h"
#include "train/trainer.h"

namespace heddle::endtoend {
namespace {

/// Eleven pairs, so that the last step of an epoch is short of them.
void write_pairs(const std::filesystem::path& path) {
  std::ofstream file(path);
  for (int row = 0; row < 11; ++row) {
    const std::string answer(static_cast<std::size_t>(2 + row % 4), 'y');
    file << Json{{"prompt", "is " + std::to_string(row * 7) + " good? "},
                 {"chosen", answer},
                 {"rejected", std::string(static_cast<std::size_t>(1 + row % 3), 'n')}}
                .dump()
         << "\n";
  }
}

Json preference_run(const std::filesystem::path& folder, const std::string& name) {
  Json config = llama_config();
  config["vocab_size"] = 260;
  Json run = small_run(folder, config, name);
  write_pairs(folder / "pairs.jsonl");
  run.update({{"tokenizer_name", "bytes"},
              {"train_file", (folder / "pairs.jsonl").string()},
              {"validation_file", (folder / "pairs.jsonl").string()},
              {"per_device_train_batch_size", 1},
              {"per_device_eval_batch_size", 3},
              {"gradient_accumulation_steps", 6},
              {"learning_rate", 3e-3},
              {"loss_type", "sigmoid"}});
  run.erase("packing");
  return run;
}

struct Outcome {
  std::string losses, weights;
  bool operator==(const Outcome&) const = default;
};

Outcome train_pairs(const std::filesystem::path& folder, const std::string& name, const Json& changes,
                    const char* weights = "model.safetensors") {
  std::filesystem::remove_all(folder / name);
  Json run = preference_run(folder, name);
  run.update(changes);
  EXPECT_EQ(train(run_file(run)), 0);
  EXPECT_EQ(read_file(folder / name / "plan.json"), read_file(folder / name / "memory.json")) << changes.dump();
  return {trajectory(folder / name), read_file(folder / name / weights)};
}

TEST(Preference, StartsAtTheLogarithmOfTwoAndLearnsToPrefer) {
  const TemporaryFolder folder;
  train_pairs(folder.path(), "out", {{"max_steps", 12}});
  const MetricsHistory history = read_metrics(folder.path() / "out" / "metrics.jsonl");
  // Policy and reference are the same model, so that all rewards are zero: -log sigmoid(0) (arXiv:2305.18290, eq. 7).
  EXPECT_NEAR(history.steps[0].loss, std::log(2.0), 1e-6);
  EXPECT_NEAR(history.steps[0].preference->margin, 0.0, 1e-6);
  ASSERT_EQ(history.evaluations.size(), 1u);
  const EvalMetrics& evaluation = history.evaluations[0];
  EXPECT_EQ(evaluation.preference->accuracy, 1.0);
  EXPECT_GT(evaluation.preference->chosen_reward, evaluation.preference->rejected_reward);
  EXPECT_LT(evaluation.loss, 0.6);
  EXPECT_FALSE(evaluation.perplexity);
}

TEST(Preference, AnAdapterStartsThereTooToTheBit) {
  const TemporaryFolder folder;
  for (const bool is_bf16 : {false, true}) {
    train_pairs(folder.path(), "out",
                {{"max_steps", 1}, {"bf16", is_bf16}, {"lora", {{"r", 2}, {"target_modules", "all-linear"}}}},
                "adapter_model.safetensors");
    const StepMetrics first = read_metrics(folder.path() / "out" / "metrics.jsonl").steps.at(0);
    // The adapter adds nothing yet, and the reference rounds where the policy does.
    EXPECT_EQ(first.preference->margin, 0.0) << is_bf16;
    EXPECT_NEAR(first.loss, std::log(2.0), 1e-6) << is_bf16;
  }
}

TEST(Preference, NoBitDependsOnRanksStagesRecomputationOrOffload) {
  const TemporaryFolder folder;
  const Outcome plain = train_pairs(folder.path(), "plain", Json::object());
  for (const auto& [ranks, stage] : {std::pair{2, 3}, {3, 1}, {2, 2}, {6, 0}}) {
    const Json changes = {
        {"ranks", ranks}, {"zero_stage", stage}, {"threads", 1}, {"gradient_accumulation_steps", 6 / ranks}};
    EXPECT_EQ(train_pairs(folder.path(), "ranks", changes), plain) << changes.dump();
  }
  EXPECT_EQ(train_pairs(folder.path(), "recompute", {{"recompute", "full"}}), plain);
  EXPECT_EQ(train_pairs(folder.path(), "offload",
                        {{"offload_optimizer", "cpu"}, {"offload_param", "cpu"}, {"offload_activations", "cpu"}}),
            plain);
}

TEST(Preference, AResumedRunAsksTheSameReference) {
  const TemporaryFolder folder;
  for (const Json& targets : {Json(), Json("all-linear"), Json::array({"q_proj", "lm_head"})}) {
    Json changes = {{"save_steps", 3}};
    if (!targets.is_null()) changes["lora"] = {{"r", 2}, {"target_modules", targets}};
    const char* weights = !targets.is_null() ? "adapter_model.safetensors" : "model.safetensors";
    const Outcome whole = train_pairs(folder.path(), "whole", changes, weights);
    changes["resume_from_checkpoint"] = (folder.path() / "whole" / "checkpoint-3").string();
    const Outcome rest = train_pairs(folder.path(), "rest", changes, weights);
    EXPECT_EQ(rest.weights, whole.weights);
    EXPECT_TRUE(whole.losses.ends_with(rest.losses) && !rest.losses.empty());
  }
}

TEST(Preference, TheMeanIsOverPairsWhateverTheMicroBatches) {
  const TemporaryFolder folder;
  const auto losses = [&](int rows, int accumulation) {
    train_pairs(folder.path(), "out",
                {{"per_device_train_batch_size", rows}, {"gradient_accumulation_steps", accumulation}});
    return read_metrics(folder.path() / "out" / "metrics.jsonl").steps;
  };
  const auto one = losses(6, 1), several = losses(2, 3);
  ASSERT_EQ(one.size(), several.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    // Sums in another order, in fp32.
    EXPECT_NEAR(one[i].loss, several[i].loss, 1e-6) << i;
    EXPECT_NEAR(one[i].grad_norm, several[i].grad_norm, 1e-5 * one[i].grad_norm) << i;
  }
}

}  // namespace
}  // namespace heddle::endtoend
