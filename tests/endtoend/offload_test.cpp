// Offload changes where bytes lie, not what is computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "small_run.h"
#include "train/trainer.h"

namespace heddle::endtoend {
namespace {

class OffloadRun : public testing::TestWithParam<const char*> {
 protected:
  struct Outcome {
    std::string losses, weights;
    bool operator==(const Outcome&) const = default;
  };

  Outcome train_with(const Json& changes) {
    const std::string name = "out" + std::to_string(runs_++);
    Json run = small_run(folder_.path(), config_, name);
    run["threads"] = 1;
    run["nvme_path"] = folder_.path().string();
    run.update(changes);
    EXPECT_EQ(train(run_file(run)), 0) << changes.dump();
    out_ = folder_.path() / name;
    EXPECT_EQ(read_file(out_ / "plan.json"), read_file(out_ / "memory.json")) << changes.dump();
    return {trajectory(out_), read_file(out_ / "model.safetensors")};
  }

  /// Greatest bytes of a class on a tier of rank 0, of the last run.
  std::int64_t held(const char* tier, const char* buffer_class) const {
    const Json memory = parse_json(read_file(out_ / "memory.json"), "memory.json");
    const Json& tiers = memory["ranks"][0]["tiers"];
    return tiers.contains(tier) ? tiers[tier]["classes"][buffer_class].get<std::int64_t>() : 0;
  }
  /// Bytes of a tier of rank 0, of the last run.
  std::int64_t held(const char* tier) const {
    const Json memory = parse_json(read_file(out_ / "memory.json"), "memory.json");
    const Json& tiers = memory["ranks"][0]["tiers"];
    return tiers.contains(tier) ? tiers[tier]["peak"].get<std::int64_t>() : 0;
  }
  std::int64_t held_in_memory() const { return held("device") + held("host"); }

  TemporaryFolder folder_;
  Json config_ = GetParam() == std::string("gpt2") ? gpt2_config() : llama_config();
  std::filesystem::path out_;
  int runs_ = 0;
};

TEST_P(OffloadRun, GivesTheBitsOfThePlainRun) {
  for (const char* precision : {"", "bf16"}) {
    for (const char* recompute : {"none", "full"}) {
      Json plain = {{"recompute", recompute}};
      if (*precision != '\0') plain[precision] = true;
      const Outcome reference = train_with(plain);
      const std::int64_t states = held("device", "optimizer_states");
      for (const char* place : {"cpu", "nvme"}) {
        for (const char* key : {"offload_optimizer", "offload_param", "offload_activations"}) {
          Json changes = plain;
          changes[key] = place;
          EXPECT_EQ(train_with(changes), reference) << changes.dump();
          if (key == std::string("offload_optimizer")) {
            EXPECT_EQ(held("device", "optimizer_states"), 0);
            EXPECT_GE(held(place == std::string("cpu") ? "host" : "nvme", "optimizer_states"), states);
          }
        }
        Json all = plain;
        for (const char* key : {"offload_optimizer", "offload_param", "offload_activations"}) all[key] = place;
        EXPECT_EQ(train_with(all), reference) << all.dump();
        EXPECT_EQ(held("device", "parameters"), 0);
      }
    }
  }
}

TEST_P(OffloadRun, GivesTheBitsOfThePlainRunOverRanks) {
  Json plain = {{"ranks", 2}, {"zero_stage", 3}, {"recompute", "full"}, {"bf16", true}};
  const Outcome reference = train_with(plain);
  for (const char* place : {"cpu", "nvme"}) {
    for (const int stage : {0, 1, 2}) {
      Json changes = plain;
      changes.update({{"zero_stage", stage}, {"offload_optimizer", place}, {"offload_activations", place}});
      EXPECT_EQ(train_with(changes), reference) << changes.dump();
    }
    Json all = plain;
    for (const char* key : {"offload_optimizer", "offload_param", "offload_activations"}) all[key] = place;
    EXPECT_EQ(train_with(all), reference) << all.dump();
  }
}

TEST_P(OffloadRun, GradientsOnNvmeGiveTheBitsOfThePlainRun) {
  const Json swapped = {{"offload_optimizer", "nvme"}, {"offload_gradients", "nvme"}};
  // muon and adafactor take the gradient as a whole; 3 ranks make micro-batches that are not the same for all.
  for (const Json& plain :
       {Json{{"gradient_accumulation_steps", 1}}, Json{{"gradient_accumulation_steps", 6}, {"bf16", true}},
        Json{{"optim", "muon"}}, Json{{"optim", "adafactor"}}}) {
    const Outcome reference = train_with(plain);
    for (const char* optimizer : {"none", "cpu", "nvme"}) {
      Json changes = plain;
      changes.update(swapped);
      changes["offload_optimizer"] = optimizer;
      EXPECT_EQ(train_with(changes), reference) << changes.dump();
      // Beside an optimizer on the device they take what activations leave.
      if (optimizer != std::string("none")) {
        EXPECT_GT(held("nvme", "gradients"), 0) << changes.dump();
      }
    }
    Json all = plain;
    all.update(swapped);
    for (const char* key : {"offload_param", "offload_activations"}) all[key] = "nvme";
    EXPECT_EQ(train_with(all), reference) << all.dump();
  }
  const Outcome reference = train_with({{"gradient_accumulation_steps", 6}});
  for (const int stage : {2, 3}) {
    Json changes = {{"gradient_accumulation_steps", 2}, {"ranks", 3}, {"zero_stage", stage}};
    changes.update(swapped);
    EXPECT_EQ(train_with(changes), reference) << changes.dump();
  }
  Json whole = {{"ranks", 2}, {"zero_stage", 1}};
  whole.update(swapped);
  EXPECT_THAT([&] { train_with(whole); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("expected zero_stage 2 or 3")));
}

TEST_P(OffloadRun, WithinABudgetNoMoreMovesThanHasToAndNoBitChanges) {
  // Large enough that whole pages count for little.
  config_.update(GetParam() == std::string("gpt2")
                     ? Json{{"n_embd", 128}, {"n_layer", 3}}
                     : Json{{"hidden_size", 128}, {"intermediate_size", 256}, {"num_hidden_layers", 3}});
  for (const Json& plain :
       {Json{{"gradient_accumulation_steps", 1}}, Json{{"gradient_accumulation_steps", 6}, {"reduction", "fast"}},
        Json{{"gradient_accumulation_steps", 6}, {"bf16", true}}, Json{{"optim", "muon"}},
        Json{{"recompute", "full"}, {"recompute_every", 2}}}) {
    const Outcome reference = train_with(plain);
    const std::int64_t most = held_in_memory(), gradients = held("device", "gradients");
    for (const char* optimizer : {"none", "cpu", "nvme"}) {
      // What is added up in host memory is added up in order.
      if (plain.contains("reduction") && optimizer != std::string("none")) continue;
      Json changes = plain;
      changes.update({{"offload_optimizer", optimizer},
                      {"offload_gradients", "nvme"},
                      {"offload_activations", "nvme"},
                      {"memory_budget", 1 << 30}});
      EXPECT_EQ(train_with(changes), reference) << changes.dump();
      EXPECT_EQ(held("nvme"), 0) << changes.dump();
      EXPECT_EQ(held(optimizer == std::string("cpu") ? "host" : "device", "gradients"), gradients) << changes.dump();
      if (optimizer != std::string("cpu")) {
        EXPECT_EQ(held_in_memory(), most) << changes.dump();
      }
      const std::int64_t all = held_in_memory();
      changes.erase("memory_budget");
      train_with(changes);
      const std::int64_t least = held_in_memory(), moved = held("nvme");
      ASSERT_LT(least, all) << changes.dump();
      changes["memory_budget"] = least + (all - least) / 2;
      EXPECT_EQ(train_with(changes), reference) << changes.dump();
      EXPECT_LE(held_in_memory(), least + (all - least) / 2) << changes.dump();
      EXPECT_GT(held("nvme"), 0) << changes.dump();
      EXPECT_LT(held("nvme"), moved) << changes.dump();
    }
  }
}

TEST_P(OffloadRun, WhatLooksBetweenStepsSeesTheWholeUpdate) {
  write_rows(folder_.path() / "validation.jsonl", 5);
  const Json plain = {{"gradient_accumulation_steps", 2},
                      {"lr_scheduler_type", "constant"},
                      {"save_steps", 2},
                      {"eval_steps", 3},
                      {"validation_file", (folder_.path() / "validation.jsonl").string()}};
  const auto evaluations = [&] {
    std::ifstream file(out_ / "metrics.jsonl");
    std::string line, text;
    while (std::getline(file, line)) {
      const Json row = parse_json(line, "metrics.jsonl");
      if (row.contains("eval_loss")) text += row["eval_loss"].dump() + "\n";
    }
    return text;
  };
  const Outcome reference = train_with(plain);
  const std::string evaluated = evaluations();
  EXPECT_THAT(evaluated, testing::Not(testing::IsEmpty()));
  for (const char* optimizer : {"none", "nvme"}) {
    Json changes = plain;
    changes.update({{"offload_optimizer", optimizer}, {"offload_gradients", "nvme"}, {"offload_param", "nvme"}});
    EXPECT_EQ(train_with(changes), reference) << changes.dump();
    EXPECT_EQ(evaluations(), evaluated) << changes.dump();
    Json resumed = plain;
    resumed["resume_from_checkpoint"] = (out_ / "checkpoint-2").string();
    EXPECT_EQ(train_with(resumed).weights, reference.weights) << changes.dump();
  }
}

TEST_P(OffloadRun, GoesOnFromACheckpointOfTheNvmeTier) {
  Json changes = {{"offload_optimizer", "nvme"}, {"bf16", true}, {"lr_scheduler_type", "constant"}, {"save_steps", 3}};
  const Outcome straight = train_with(changes);
  changes["max_steps"] = 3;
  train_with(changes);
  changes.update({{"max_steps", 6}, {"offload_optimizer", "none"}, {"output_dir", out_.string()}});
  Json run = small_run(folder_.path(), config_, "unused");
  run.update(changes);
  ASSERT_EQ(train(run_file(run)), 0);
  EXPECT_EQ(read_file(out_ / "model.safetensors"), straight.weights);
}

INSTANTIATE_TEST_SUITE_P(Families, OffloadRun, testing::Values("llama", "gpt2"),
                         [](const auto& family) { return std::string(family.param); });

TEST(NvmePath, AFolderThatIsNotThereIsRefusedByName) {
  const TemporaryFolder folder;
  Json run = small_run(folder.path(), llama_config(), "out");
  run.update({{"offload_optimizer", "nvme"}, {"nvme_path", (folder.path() / "absent").string()}});
  try {
    train(run_file(run));
    FAIL() << "was accepted";
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("absent"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "out"));
}

}  // namespace
}  // namespace heddle::endtoend
