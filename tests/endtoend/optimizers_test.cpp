// Every optimizer trains, and whatever ranks share and wherever states lie, it computes what one rank with all in place
// computes; so does what training adds to the loss and to embeddings.
#include <gtest/gtest.h>

#include <cctype>
#include <sstream>

#include "small_run.h"
#include "train/trainer.h"

namespace heddle::endtoend {
namespace {

/// Matrices of more than 4096 elements, whose 8-bit states are in use, and of more than 16384, of other pieces over
/// ranks; biases and norms beside them, and a head of its own.
Json wide_config() {
  Json config = llama_config();
  config.update(
      {{"hidden_size", 64}, {"intermediate_size", 272}, {"attention_bias", true}, {"tie_word_embeddings", false}});
  return config;
}

struct Outcome {
  std::string losses, weights;
  bool operator==(const Outcome&) const = default;
};

class OptimizerRun : public testing::TestWithParam<Json> {
 protected:
  /// Four micro-batches a step, divided among the ranks.
  Outcome train_with(const Json& changes) {
    const std::string name = "out" + std::to_string(runs_++);
    Json run = small_run(folder_.path(), wide_config(), name);
    write_rows(folder_.path() / "rows.jsonl", 32);
    run.update({{"threads", 1}, {"nvme_path", folder_.path().string()}, {"weight_decay", 0.1}, {"max_steps", 3}});
    run.update(GetParam());
    run.update(changes);
    run["gradient_accumulation_steps"] = 4 / run.value("ranks", 1);
    EXPECT_EQ(train(run_file(run)), 0) << changes.dump();
    out_ = run["output_dir"].get<std::string>();
    EXPECT_EQ(read_file(out_ / "plan.json"), read_file(out_ / "memory.json")) << changes.dump();
    return {trajectory(out_), read_file(out_ / "model.safetensors")};
  }

  TemporaryFolder folder_;
  std::filesystem::path out_;
  int runs_ = 0;
};

TEST_P(OptimizerRun, LowersTheLossInItsOwnWay) {
  const Outcome trained = train_with({{"max_steps", 16}, {"shuffle", false}, {"lr_scheduler_type", "constant"}});
  std::istringstream losses(trained.losses);
  double first = 0, norm = 0, last = 0;
  losses >> first >> norm;
  while (losses >> last >> norm) {
  }
  EXPECT_LT(last, first);
  if (GetParam() == Json{{"optim", "adamw"}}) return;
  Json as_adamw = {{"max_steps", 16}, {"shuffle", false}, {"lr_scheduler_type", "constant"}, {"optim", "adamw"}};
  as_adamw.update({{"optim_args", nullptr}, {"neftune_noise_alpha", nullptr}, {"label_smoothing_factor", 0.0}});
  EXPECT_NE(trained.weights, train_with(as_adamw).weights);
}

TEST_P(OptimizerRun, GivesTheBitsOfOneRankAtEveryStage) {
  for (const char* precision : {"", "bf16"}) {
    const Json plain = *precision == '\0' ? Json::object() : Json{{precision, true}};
    const Outcome one = train_with(plain);
    for (const int ranks : {2, 4}) {
      for (const int stage : {0, 1, 2, 3}) {
        Json changes = plain;
        changes.update({{"ranks", ranks}, {"zero_stage", stage}});
        EXPECT_EQ(train_with(changes), one) << changes.dump();
      }
    }
    Json threads = plain;
    threads["threads"] = 3;
    EXPECT_EQ(train_with(threads), one);
  }
}

TEST_P(OptimizerRun, GivesTheBitsOfThePlainRunWhereverStatesLie) {
  const Outcome plain = train_with({{"bf16", true}});
  for (const char* place : {"cpu", "nvme"}) {
    for (const int stage : {0, 1, 2, 3}) {
      for (const int ranks : {1, 2}) {
        if (ranks == 1 && stage > 0) continue;
        const Json changes = {{"bf16", true}, {"ranks", ranks}, {"zero_stage", stage}, {"offload_optimizer", place}};
        EXPECT_EQ(train_with(changes), plain) << changes.dump();
        const Json memory = parse_json(read_file(out_ / "memory.json"), "memory.json");
        EXPECT_EQ(memory["ranks"][0]["tiers"]["device"]["classes"]["optimizer_states"], 0) << changes.dump();
      }
    }
  }
}

TEST_P(OptimizerRun, GoesOnFromACheckpointInAnyLayout) {
  const Json steps = {{"bf16", true}, {"lr_scheduler_type", "constant"}, {"save_steps", 2}, {"max_steps", 4}};
  const Outcome straight = train_with(steps);
  const std::vector<Json> layouts = {Json::object(),
                                     {{"ranks", 2}, {"zero_stage", 0}},
                                     {{"ranks", 4}, {"zero_stage", 3}},
                                     {{"offload_optimizer", "nvme"}}};
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    Json first = steps, second = steps;
    first.update(layouts[i]);
    first["max_steps"] = 2;
    train_with(first);
    second.update(layouts[(i + 1) % layouts.size()]);
    second["output_dir"] = out_.string();
    EXPECT_EQ(train_with(second), straight) << layouts[i].dump();
  }
}

std::string name_of(const testing::TestParamInfo<Json>& test) {
  std::string name;
  for (const auto& [key, value] : test.param.items()) {
    for (const char c : value.is_string() ? value.get<std::string>() : key) {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
    }
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, OptimizerRun,
    testing::Values(
        Json{{"optim", "adamw"}}, Json{{"optim", "adamw_8bit"}}, Json{{"optim", "lion"}},
        Json{{"optim", "sgd"}, {"learning_rate", 0.1}},
        Json{{"optim", "sgd"}, {"optim_args", "momentum=0.9,dampening=0.1"}, {"learning_rate", 0.1}},
        Json{{"optim", "adafactor"}}, Json{{"optim", "muon"}, {"optim_args", "adam_lr=2e-3"}},
        Json{{"optim", "adamw"}, {"neftune_noise_alpha", 5}, {"label_smoothing_factor", 0.1}, {"z_loss", 1e-3}}),
    name_of);

TEST(OptimizerStates, ACheckpointOfAnotherOptimizerIsRefusedByName) {
  const TemporaryFolder folder;
  Json run = small_run(folder.path(), wide_config(), "out");
  const auto train_as = [&](const char* optim, int steps) {
    run.update({{"optim", optim}, {"max_steps", steps}, {"save_steps", 1}});
    try {
      return train(run_file(run)) == 0 ? std::string() : "stopped";
    } catch (const std::exception& error) {
      return std::string(error.what());
    }
  };
  for (const char* first : {"adamw", "adamw_8bit", "muon"}) {
    std::filesystem::remove_all(folder.path() / "out");
    ASSERT_EQ(train_as(first, 1), "");
    for (const char* second : {"adamw", "adamw_8bit", "lion", "sgd", "adafactor", "muon"}) {
      if (std::string(first) == second) continue;
      EXPECT_NE(train_as(second, 2).find("its run had another optim"), std::string::npos) << first << ", " << second;
    }
  }
}

TEST(Regularization, IsOfTrainingAloneAndTheSameHoweverItIsRecomputed) {
  const TemporaryFolder folder;
  const Json terms = {{"neftune_noise_alpha", 5}, {"label_smoothing_factor", 0.1}, {"z_loss", 1e-3}};
  const auto losses_of = [&](const std::string& name, const Json& changes) {
    Json run = small_run(folder.path(), gpt2_config(), name);
    run.update({{"learning_rate", 0.0}, {"validation_file", run["train_file"]}, {"max_steps", 2}});
    run.update(changes);
    EXPECT_EQ(train(run_file(run)), 0);
    std::ifstream file(folder.path() / name / "metrics.jsonl");
    std::pair<std::string, std::string> losses;
    for (std::string line; std::getline(file, line);) {
      const Json row = parse_json(line, "metrics.jsonl");
      (row.contains("loss") ? losses.first : losses.second) +=
          row.value("loss", row.value("eval_loss", Json())).dump() + " ";
    }
    return losses;
  };
  const auto plain = losses_of("plain", Json::object()), with = losses_of("with", terms);
  EXPECT_NE(plain.first, with.first);
  EXPECT_EQ(plain.second, with.second);  // the weights stay, so the evaluation's loss does
  EXPECT_FALSE(plain.second.empty());
  Json recomputed = terms;
  recomputed.update({{"recompute", "full"}, {"threads", 3}});
  EXPECT_EQ(losses_of("recomputed", recomputed).first, with.first);
}

}  // namespace
}  // namespace heddle::endtoend
