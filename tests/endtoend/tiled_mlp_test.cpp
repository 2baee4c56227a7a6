// MLPs in tiles change where and when their inside is computed, not what.
#include <gtest/gtest.h>

#include "planner/activation_choice.h"
#include "small_run.h"
#include "train/trainer.h"

namespace heddle::endtoend {
namespace {

class TiledRun : public testing::Test {
 protected:
  struct Outcome {
    std::string losses, weights;
    bool operator==(const Outcome&) const = default;
  };

  /// Rows of 100 to 440 tokens, two in a micro-batch: one to three tiles of 320 tokens each.
  Outcome train_with(Json config, const Json& changes) {
    const std::string name = "out" + std::to_string(runs_++);
    config[config["model_type"] == "gpt2" ? "n_positions" : "max_position_embeddings"] = 512;
    Json run = small_run(folder_.path(), config, name);
    std::ofstream rows(folder_.path() / "rows.jsonl");
    for (int row = 0; row < 8; ++row) {
      Json ids = Json::array();
      for (int i = 0; i < 100 + row * 7 % 8 * 48; ++i) ids.push_back((i * i + row * 31) % 95 + 1);
      rows << Json{{"input_ids", ids}}.dump() << "\n";
    }
    rows.close();
    run.update({{"threads", 1}, {"max_length", 512}, {"max_steps", 2}});
    run.update(changes);
    if (run.contains("model_name_or_path")) run.erase("config_name");
    EXPECT_EQ(train(run_file(run), choose_activations_for_training), 0) << changes.dump();
    out_ = folder_.path() / name;
    EXPECT_EQ(read_file(out_ / "plan.json"), read_file(out_ / "memory.json")) << changes.dump();
    const bool is_adapter = changes.contains("lora");
    return {trajectory(out_), read_file(out_ / (is_adapter ? "adapter_model.safetensors" : "model.safetensors"))};
  }

  /// In tiles of 320 tokens, the least.
  Outcome train_tiled(const Json& config, Json changes) {
    changes.update({{"tiled_mlp", true}, {"tiled_mlp_num_shards", 100}});
    return train_with(config, changes);
  }

  /// Of the last run.
  Json device() const { return parse_json(read_file(out_ / "plan.json"), "plan.json")["ranks"][0]["tiers"]["device"]; }
  std::int64_t activations() const { return device()["classes"]["activations"].get<std::int64_t>(); }

  TemporaryFolder folder_;
  std::filesystem::path out_;
  int runs_ = 0;
};

Json family(const char* model_type) {
  Json config = llama_config();
  config["model_type"] = model_type;
  if (config["model_type"] == "qwen3") config["head_dim"] = 8;
  if (config["model_type"] == "gemma2" || config["model_type"] == "gemma3_text")
    config.update({{"head_dim", 8}, {"query_pre_attn_scalar", 8}});
  config["pad_token_id"] = 0;
  return config;
}

TEST_F(TiledRun, GivesTheBitsOfTheWhole) {
  const Json adapter = {{"r", 4}, {"target_modules", "all-linear"}, {"lora_dropout", 0.1}, {"use_dora", true}};
  train_with(family("llama"), {{"max_steps", 1}});
  const std::string base = out_.string();  // DoRA splits weights that are there
  const std::vector<std::pair<Json, Json>> cases = {
      {family("llama"), {{"reduction", "fast"}}},
      {family("llama"), {{"model_name_or_path", base}, {"lora", adapter}, {"bf16", true}}},
      {family("llama"), {{"model_name_or_path", base}, {"lora", adapter}, {"load_in_4bit", true}}},
      {family("gemma2"), {{"bf16", true}}},
      {family("gemma3_text"), {{"bf16", true}}},
      {family("olmo2"), Json::object()},
      {family("qwen3"), {{"bf16", true}}},
      {family("phi3"), Json::object()},
      {gpt2_config(), {{"bf16", true}}},
  };
  for (auto [config, changes] : cases) {
    const Outcome whole = train_with(config, changes);
    EXPECT_EQ(train_tiled(config, changes), whole) << changes.dump();
    changes["recompute"] = "full";
    EXPECT_EQ(train_tiled(config, changes), whole) << changes.dump();
  }
}

TEST_F(TiledRun, GivesTheBitsOfTheWholeInEveryLayout) {
  const Json config = family("llama");
  const Outcome whole = train_with(config, {{"bf16", true}});
  for (Json changes : {Json{{"ranks", 2}, {"zero_stage", 3}, {"gradient_accumulation_steps", 1}},
                       Json{{"offload_optimizer", "cpu"}, {"offload_param", "cpu"}, {"offload_activations", "cpu"}},
                       Json{{"offload_optimizer", "nvme"},
                            {"offload_param", "nvme"},
                            {"offload_activations", "nvme"},
                            {"nvme_path", folder_.path().string()}}}) {
    changes["bf16"] = true;
    EXPECT_EQ(train_tiled(config, changes), whole) << changes.dump();
    changes["recompute"] = "full";
    EXPECT_EQ(train_tiled(config, changes), whole) << changes.dump();
  }
  EXPECT_EQ(train_tiled(config, {{"bf16", true}}), whole);
  const auto budget = device()["peak"].get<std::int64_t>() - 1;
  EXPECT_EQ(train_tiled(config, {{"bf16", true}, {"recompute", "auto"}, {"device_memory", budget}}), whole);
  EXPECT_LE(device()["peak"], budget);
}

TEST_F(TiledRun, KeepsLess) {
  // Per token and block gate and up, 2 x 400 elements, are kept for one tile of 320 of some 1,200 tokens; what stays
  // (the block's input, queries, keys, values, attention's output and the sum after it) is 160.
  Json config = family("llama");
  config["intermediate_size"] = 400;
  for (const char* recompute : {"none", "full"}) {
    const Json changes = {{"recompute", recompute}, {"per_device_train_batch_size", 4}, {"max_steps", 1}};
    train_with(config, changes);
    const std::int64_t whole = activations();
    train_tiled(config, changes);
    EXPECT_LT(activations(), whole * 6 / 10) << recompute;
  }
}

}  // namespace
}  // namespace heddle::endtoend
