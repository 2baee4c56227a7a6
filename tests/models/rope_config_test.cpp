#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "model_config_cases.h"

// rope in config.json, as transformers 4 and 5 write it; meanings as in transformers 5.24.0.
namespace heddle {
namespace {

using testing::ElementsAre;
using testing::StartsWith;

constexpr const char* kLlama3 =
    R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32)";
constexpr const char* kPairs = R"("short_factor": [1, 2, 3, 4], "long_factor": [5, 6, 7, 8])";

std::string text(std::initializer_list<std::string_view> parts) {
  std::string all;
  for (const auto part : parts) all += part;
  return all;
}

TEST(RopeConfig, TheBaseInBothSpellings) {
  EXPECT_EQ(parse("llama", R"({"rope_theta": 500})").rope.theta, 500);
  EXPECT_EQ(parse("llama", R"({"rope_theta": 500, "rope_scaling": null})").rope.theta, 500);
  EXPECT_EQ(parse("llama", R"({"rope_parameters": {"rope_theta": 500.0, "rope_type": "default"}})").rope.theta, 500);
  EXPECT_EQ(parse("llama", R"({"rope_parameters": {"rope_theta": 500.0}})").rope.theta, 500);
  EXPECT_EQ(parse("llama", R"({"rope_parameters": {"rope_type": "default"}, "rope_theta": 500})").rope.theta, 500);
  EXPECT_EQ(parse("llama", R"({"rope_parameters": {"rope_theta": 300.0}, "rope_theta": 500})").rope.theta, 300);
  EXPECT_EQ(parse("llama", R"({"rope_scaling": {}, "rope_parameters": {"rope_theta": 300.0}})").rope.theta, 300);
}

TEST(RopeConfig, EveryTypeInBothSpellings) {
  const std::vector<std::pair<RopeType, std::string>> types = {
      {RopeType::linear, R"("factor": 2.5)"},
      {RopeType::dynamic, R"("factor": 2.5)"},
      {RopeType::yarn, R"("factor": 2.5, "original_max_position_embeddings": 16)"},
      {RopeType::llama3, kLlama3},
      {RopeType::longrope, kPairs},
  };
  const std::vector<std::string> names = {"linear", "dynamic", "yarn", "llama3", "longrope"};
  for (std::size_t i = 0; i < types.size(); ++i) {
    const auto& [type, rest] = types[i];
    for (const char* key : {"type", "rope_type"}) {
      EXPECT_EQ(parse("llama",
                      text({R"({"rope_theta": 500, "rope_scaling": {")", key, "\": \"", names[i], "\", ", rest, "}}"}))
                    .rope.type,
                type);
      const RopeConfig rope =
          parse("llama",
                text({R"({"rope_parameters": {"rope_theta": 500, ")", key, "\": \"", names[i], "\", ", rest, "}}"}))
              .rope;
      EXPECT_EQ(rope.type, type);
      EXPECT_EQ(rope.theta, 500);
    }
  }
}

TEST(RopeConfig, FieldsOfEachType) {
  EXPECT_EQ(parse("llama", R"({"rope_scaling": {"type": "linear", "factor": 2.5}})").rope.factor, 2.5);
  EXPECT_EQ(
      parse("llama", R"({"rope_scaling": {"type": "dynamic", "factor": 2}})").rope.original_max_position_embeddings,
      64);

  const RopeConfig llama3 = parse("llama", text({R"({"rope_scaling": {"rope_type": "llama3", )", kLlama3, "}}"})).rope;
  EXPECT_EQ(llama3.factor, 8);
  EXPECT_EQ(llama3.low_freq_factor, 1);
  EXPECT_EQ(llama3.high_freq_factor, 4);
  EXPECT_EQ(llama3.original_max_position_embeddings, 32);

  const RopeConfig yarn = parse("qwen2", R"({"rope_scaling": {"type": "yarn", "factor": 4.0}})").rope;
  EXPECT_EQ(yarn.original_max_position_embeddings, 64);  // max_position_embeddings
  EXPECT_EQ(yarn.beta_fast, 32);
  EXPECT_EQ(yarn.beta_slow, 1);
  EXPECT_TRUE(yarn.truncate);
  EXPECT_FALSE(yarn.attention_factor.has_value());
  const RopeConfig full =
      parse("llama",
            R"({"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
      "beta_fast": 4, "beta_slow": 0.5, "truncate": false, "mscale": 0.7, "mscale_all_dim": 1,
      "attention_factor": 1.5}})")
          .rope;
  EXPECT_EQ(full.original_max_position_embeddings, 16);
  EXPECT_EQ(full.beta_fast, 4);
  EXPECT_EQ(full.beta_slow, 0.5);
  EXPECT_FALSE(full.truncate);
  EXPECT_EQ(full.mscale, 0.7);
  EXPECT_EQ(full.mscale_all_dim, 1);
  EXPECT_EQ(full.attention_factor, 1.5);
}

TEST(RopeConfig, PhisLongropeUnderItsThreeNames) {
  for (const char* name : {"longrope", "su", "yarn"}) {
    const RopeConfig rope =
        parse("phi3", text({R"({"original_max_position_embeddings": 16, "rope_scaling": {"type": ")", name, "\", ",
                            kPairs, "}}"}))
            .rope;
    EXPECT_EQ(rope.type, RopeType::longrope);
    EXPECT_EQ(rope.factor, 4);  // 64 / 16
    EXPECT_EQ(rope.original_max_position_embeddings, 16);
    EXPECT_THAT(rope.short_factor, ElementsAre(1, 2, 3, 4));
    EXPECT_THAT(rope.long_factor, ElementsAre(5, 6, 7, 8));
  }
  // Both spellings in one object, as transformers 5 saves an older config.
  EXPECT_EQ(
      parse("phi3", text({R"({"rope_parameters": {"type": "su", "rope_type": "longrope", )", kPairs, "}}"})).rope.type,
      RopeType::longrope);
}

TEST(RopeConfig, PhiRotatesAPartOfTheHead) {
  EXPECT_EQ(parse("phi3", R"({"partial_rotary_factor": 0.5})").rope.partial_rotary_factor, 0.5);
  EXPECT_EQ(
      parse("phi3", R"({"rope_parameters": {"partial_rotary_factor": 0.75, "rope_theta": 9, "rope_type": "default"}})")
          .rope.partial_rotary_factor,
      0.75);
  EXPECT_THAT(parse("phi3",
                    R"({"partial_rotary_factor": 0.5, "rope_scaling": {"type": "longrope", "short_factor": [1, 2],
              "long_factor": [3, 4]}})")
                  .rope.long_factor,
              ElementsAre(3, 4));
}

TEST(RopeConfig, Gemma3HasOneForLocalLayersToo) {
  const ModelConfig plain = parse("gemma3_text");
  EXPECT_EQ(plain.rope.theta, 1e6);
  ASSERT_TRUE(plain.local_rope.has_value());
  EXPECT_EQ(plain.local_rope->theta, 1e4);

  const ModelConfig old = parse(
      "gemma3_text",
      R"({"rope_theta": 1000, "rope_local_base_freq": 100, "rope_scaling": {"rope_type": "linear", "factor": 8}})");
  const ModelConfig now = parse(
      "gemma3_text", R"({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8, "rope_theta": 1000},
      "sliding_attention": {"rope_type": "default", "rope_theta": 100}}})");
  for (const ModelConfig& c : {old, now}) {
    EXPECT_EQ(c.rope.type, RopeType::linear);
    EXPECT_EQ(c.rope.factor, 8);
    EXPECT_EQ(c.rope.theta, 1000);
    EXPECT_EQ(c.local_rope->type, RopeType::standard);
    EXPECT_EQ(c.local_rope->theta, 100);
  }
  EXPECT_THAT(
      config_error(config_with("gemma3_text", R"({"rope_parameters": {"rope_theta": 1000, "rope_type": "default"}})")),
      StartsWith("config.json: rope_parameters.rope_theta is no known key"));
  EXPECT_THAT(config_error(config_with("llama", R"({"rope_parameters": {"full_attention": {"rope_theta": 1000}}})")),
              StartsWith("config.json: rope_parameters.full_attention is there"));
}

TEST(RopeConfig, BadValuesAreRefusedByKey) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"rope_theta": 0.0})", "rope_theta is 0.0"},
      {R"({"rope_theta": "10000"})", "rope_theta is \"10000\""},
      {R"({"rope_parameters": {"rope_theta": -1}})", "rope_parameters.rope_theta is -1"},
      {R"({"rope_scaling": "linear"})", "rope_scaling is \"linear\""},
      {R"({"rope_scaling": {"factor": 2.0}})", "rope_scaling.rope_type is absent"},
      {R"({"rope_scaling": {"rope_type": "spiral", "factor": 2.0}})", "rope_scaling.rope_type is \"spiral\""},
      {R"({"rope_scaling": {"type": 3, "factor": 2.0}})", "rope_scaling.type is 3"},
      {R"({"rope_scaling": {"rope_type": "linear", "type": "dynamic", "factor": 2.0}})",
       "rope_scaling.type is \"dynamic\""},
      {R"({"rope_scaling": {"rope_type": "linear"}})", "rope_scaling.factor is absent"},
      {R"({"rope_scaling": {"rope_type": "linear", "factor": 0.0}})", "rope_scaling.factor is 0.0"},
      {R"({"rope_scaling": {"rope_type": "dynamic"}})", "rope_scaling.factor is absent"},
      {R"({"rope_scaling": {"rope_type": "yarn"}})", "rope_scaling.factor is absent"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}})", "rope_scaling.low_freq_factor is absent"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1}})",
       "rope_scaling.high_freq_factor is absent"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 1}})",
       "rope_scaling.high_freq_factor is 1"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1, "high_freq_factor": 4}})",
       "rope_scaling.original_max_position_embeddings is absent"},
      {R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1, 2, 3, 4]}})",
       "rope_scaling.long_factor is absent"},
      {R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1, 2, 3], "long_factor": [1, 2, 3, 4]}})",
       "rope_scaling.short_factor has 3 elements; expected 4"},
      {R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1, 2, 3, 0], "long_factor": [1, 2, 3, 4]}})",
       "rope_scaling.short_factor is [1,2,3,0]"},
      {R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor is 0.5; expected 1 in a llama model"},
      {R"({"head_dim": 2, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})", "head_dim is 2"},
  };
  for (const auto& [changes, expected] : cases) {
    EXPECT_THAT(config_error(config_with("llama", changes)), StartsWith("config.json: " + expected)) << changes;
  }
  EXPECT_THAT(config_error(config_with("phi3", R"({"rope_scaling": {"type": "linear", "factor": 2.0}})")),
              StartsWith("config.json: rope_scaling.type is \"linear\""));
  EXPECT_THAT(config_error(config_with("phi3", text({R"({"rope_scaling": {"type": "longrope", )", kPairs,
                                                     R"(, "original_max_position_embeddings": 16}})"}))),
              StartsWith("config.json: rope_scaling.original_max_position_embeddings is 16"));
  EXPECT_THAT(config_error(config_with("phi3", R"({"partial_rotary_factor": 0.4})")),
              StartsWith("config.json: head_dim is 8, of which rope rotates 3"));
  EXPECT_THAT(config_error(config_with("phi3", R"({"partial_rotary_factor": 0})")),
              StartsWith("config.json: head_dim is 8, of which rope rotates 0"));
}

}  // namespace
}  // namespace heddle
