#include "models/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "formats/json.h"
#include "models/model.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kConfig =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 96, "hidden_size": 32,
        "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 64, "tie_word_embeddings": false})";

ModuleList list_modules() {
  ModuleList modules;
  emit_model(modules, parse_model_config(kConfig, "config.json"));
  return modules;
}

LoraModules modules_for(LoraConfig config, const std::string& model_type = "llama") {
  return {std::move(config), model_type, list_modules(), "run.yaml: lora"};
}

std::string error_of(LoraConfig config, const std::string& model_type = "llama") {
  try {
    modules_for(std::move(config), model_type);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ModuleList, HasTheLinearLayersOfTheBlocksAndAllWeights) {
  const ModuleList modules = list_modules();
  EXPECT_EQ(modules.linear.size(), 14u);  // 7 a block; the head is none of them
  EXPECT_EQ(modules.linear.front(), "model.layers.0.self_attn.q_proj");
  EXPECT_EQ(modules.weights.size(), 2 * 9u + 3u);
  EXPECT_FALSE(modules.is_transposed);
}

TEST(LoraModules, TargetsAreWholeNamesOrTheirEnds) {
  LoraConfig config;
  config.target_modules = {"q_proj", "model.layers.1.mlp.down_proj"};
  const LoraModules modules = modules_for(config);
  EXPECT_TRUE(modules.has_adapter("model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(modules.has_adapter("model.layers.1.mlp.down_proj"));
  EXPECT_FALSE(modules.has_adapter("model.layers.0.mlp.down_proj"));
}

TEST(LoraModules, LayersToTransformLeaveOutOtherBlocks) {
  LoraConfig config;
  config.target_modules = {"q_proj"};
  config.layers_to_transform = {1};
  config.layers_pattern = {"layers"};
  const LoraModules modules = modules_for(config);
  EXPECT_FALSE(modules.has_adapter("model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(modules.has_adapter("model.layers.1.self_attn.q_proj"));
}

TEST(LoraModules, APatternMatchesWholeNames) {
  LoraConfig config;
  config.target_pattern = R"(model\.layers\.\d+\.mlp\.(up|down)_proj)";
  const LoraModules modules = modules_for(config);
  EXPECT_TRUE(modules.has_adapter("model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(modules.has_adapter("model.layers.0.mlp.gate_proj"));
  config.target_pattern = "up_proj";
  EXPECT_THAT(error_of(config), HasSubstr("no layer of the model is a target"));
}

TEST(LoraModules, ScalingIsAlphaByRankOrItsRoot) {
  LoraConfig config;
  config.target_modules = {"q_proj", "v_proj"};
  config.r = 4;
  config.lora_alpha = 12;
  config.rank_pattern = {{"v_proj", 16}};
  EXPECT_EQ(modules_for(config).scaling_of("model.layers.0.self_attn.q_proj"), 3.0);
  EXPECT_EQ(modules_for(config).scaling_of("model.layers.0.self_attn.v_proj"), 0.75);
  config.use_rslora = true;
  EXPECT_EQ(modules_for(config).scaling_of("model.layers.0.self_attn.q_proj"), 6.0);
}

TEST(LoraModules, TrainsModulesToSaveAndBiasesUnderPeftsNames) {
  LoraConfig config;
  config.target_modules = {"q_proj"};
  config.modules_to_save = {"lm_head"};
  config.bias = "all";
  const LoraModules modules = modules_for(config);
  EXPECT_TRUE(modules.trains("lm_head.weight"));
  EXPECT_FALSE(modules.trains("model.embed_tokens.weight"));
  EXPECT_TRUE(modules.trains("model.layers.0.self_attn.k_proj.bias"));
  EXPECT_EQ(modules.saved_name("lm_head.weight"), "base_model.model.lm_head.weight");
  EXPECT_EQ(modules.saved_name("model.layers.0.self_attn.q_proj.bias"),
            "base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias");
  EXPECT_EQ(modules.saved_name("model.layers.0.self_attn.k_proj.bias"),
            "base_model.model.model.layers.0.self_attn.k_proj.bias");
}

LoraModules tied_modules_for(LoraConfig config) {
  Json document = parse_json(kConfig, "config.json");
  document["tie_word_embeddings"] = true;
  ModuleList list;
  emit_model(list, parse_model_config(document.dump(), "config.json"));
  return {std::move(config), "llama", list, "run.yaml: lora"};
}

TEST(LoraModules, TakesTheEmbeddingAndTheHeadByNameAlone) {
  LoraConfig config;
  config.target_modules = {"embed_tokens", "lm_head"};
  EXPECT_TRUE(modules_for(config).has_adapter("model.embed_tokens"));
  EXPECT_TRUE(modules_for(config).has_adapter("lm_head"));
  EXPECT_FALSE(modules_for(config).splits_tied());
  EXPECT_TRUE(tied_modules_for(config).splits_tied());
  config.use_dora = true;
  EXPECT_EQ(error_of(config), "no error");
  config.lora_dropout = 0.1;
  EXPECT_THAT(error_of(config), HasSubstr("use_dora"));
  LoraConfig all;
  all.target_pattern = "all-linear";
  EXPECT_FALSE(modules_for(all).has_adapter("lm_head"));
  EXPECT_FALSE(modules_for(all).has_vocabulary());
}

TEST(LoraModules, TrainsRowsOfTheTablesByTheirIds) {
  const auto with = [](std::map<std::string, std::vector<std::int64_t>> tokens) {
    LoraConfig config;
    config.target_modules = {"q_proj"};
    config.trainable_token_indices = std::move(tokens);
    return config;
  };
  const std::string rows = "base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta";
  const LoraModules untied = modules_for(with({{"", {7, 3}}}));
  EXPECT_EQ(untied.token_rows("model.embed_tokens")->weight, rows);
  EXPECT_THAT(untied.token_rows("model.embed_tokens")->ids, ElementsAre(7, 3));
  EXPECT_EQ(untied.token_rows("lm_head"), nullptr);
  EXPECT_EQ(untied.greatest_token_row(), 7);
  // Tied: PEFT's set_additional_trainable_modules gives the head the embedding's rows unless it has others of its own.
  EXPECT_EQ(tied_modules_for(with({{"embed_tokens", {7, 3}}})).token_rows("lm_head")->weight, rows);
  EXPECT_FALSE(tied_modules_for(with({{"embed_tokens", {7}}, {"lm_head", {7}}})).splits_tied());
  const LoraModules split = tied_modules_for(with({{"embed_tokens", {7}}, {"lm_head", {3}}}));
  EXPECT_TRUE(split.splits_tied());
  EXPECT_EQ(split.token_rows("lm_head")->weight, "base_model.model.lm_head.token_adapter.trainable_tokens_delta");
  EXPECT_EQ(tied_modules_for(with({{"lm_head", {3}}})).token_rows("model.embed_tokens"), nullptr);

  EXPECT_THAT(error_of(with({{"q_proj", {3}}})), HasSubstr("q_proj is neither the embedding"));
  EXPECT_THAT(error_of(with({{"", {3, 3}}})), HasSubstr("each once"));
  LoraConfig both = with({{"", {3}}});
  both.modules_to_save = {"embed_tokens"};
  EXPECT_THAT(error_of(both), HasSubstr("among modules_to_save too"));
  LoraConfig outside = with({{"", {96}}});
  const LoraModules modules = modules_for(outside);
  ModuleList list;
  LoraEmitter emitter(list, modules, true);
  EXPECT_THAT([&] { emit_model(emitter, parse_model_config(kConfig, "config.json")); },
              ::testing::ThrowsMessage<Error>(HasSubstr("96 is no id of the model, whose vocabulary has 96")));
}

TEST(LoraModules, ASavedTableOfATiedModelIsACopyUnlessBothAreOne) {
  LoraConfig config;
  config.target_modules = {"q_proj"};
  EXPECT_FALSE(tied_modules_for(config).unties_head());
  config.modules_to_save = {"lm_head"};
  EXPECT_TRUE(tied_modules_for(config).unties_head());
  EXPECT_FALSE(tied_modules_for(config).trains("model.embed_tokens.weight"));
  EXPECT_FALSE(modules_for(config).unties_head());  // it is untied already
  config.ensure_weight_tying = true;
  EXPECT_FALSE(tied_modules_for(config).unties_head());
  EXPECT_TRUE(tied_modules_for(config).trains("model.embed_tokens.weight"));
}

TEST(LoraModules, RefusesWhatTheModelDoesNotHave) {
  LoraConfig config;
  config.target_modules = {"q_prj"};
  EXPECT_THAT(error_of(config), HasSubstr("run.yaml: lora: target_modules: q_prj names no module"));
  EXPECT_THAT(error_of(config), HasSubstr("did you mean q_proj"));
  config.target_modules = {"norm"};
  EXPECT_THAT(error_of(config), HasSubstr("modules_to_save"));
  config.target_modules = {};
  EXPECT_THAT(error_of(config, "phi3"), HasSubstr("target_modules is missing"));
  config.modules_to_save = {"lm_haed"};
  EXPECT_THAT(error_of(config), HasSubstr("lm_haed names no module of the model; did you mean lm_head?"));
}

}  // namespace
}  // namespace heddle
