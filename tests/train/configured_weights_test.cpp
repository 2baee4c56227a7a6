#include "train/configured_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "formats/files.h"
#include "formats/json.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ConfiguredWeightsTest : public testing::Test {
 protected:
  ConfiguredWeightsTest() { fs::create_directories(folder_); }
  ~ConfiguredWeightsTest() override { fs::remove_all(folder_); }

  /// A llama of two layers with these keys in its quantization_config.
  ModelSource model(bool is_tied, Json quantization) const {
    quantization["quant_method"] = "bitsandbytes";
    quantization["load_in_4bit"] = true;
    const Json config = {{"model_type", "llama"},
                         {"vocab_size", 32},
                         {"hidden_size", 64},
                         {"intermediate_size", 64},
                         {"num_hidden_layers", 2},
                         {"num_attention_heads", 1},
                         {"max_position_embeddings", 64},
                         {"tie_word_embeddings", is_tied},
                         {"quantization_config", quantization}};
    write_text_file(folder_ / "config.json", config.dump());
    return open_model(folder_ / "config.json");
  }

  fs::path folder_ = fs::temp_directory_path() / ("heddle_configured_weights_" + std::to_string(::getpid()));
};

// BitsAndBytesConfig's defaults, and transformers' get_modules_to_not_convert() and should_convert_module().
TEST_F(ConfiguredWeightsTest, LinearLayersButForTheHeadHaveTheTypeThatTheConfigNames) {
  const ConfiguredWeights plain(model(false, Json::object()));
  EXPECT_EQ(plain.tensors().size(), 2u * 7u);
  EXPECT_EQ(plain.find("model.layers.1.mlp.up_proj.weight")->dtype, DType::fp4);
  EXPECT_EQ(plain.find("lm_head.weight"), nullptr);
  EXPECT_EQ(plain.find("model.embed_tokens.weight"), nullptr);
  const ConfiguredWeights nested(model(false, {{"bnb_4bit_quant_type", "nf4"}, {"bnb_4bit_use_double_quant", true}}));
  EXPECT_EQ(nested.find("model.layers.0.self_attn.q_proj.weight")->dtype, DType::nf4_double);
}

TEST_F(ConfiguredWeightsTest, ModulesThatTheConfigSkipsAreNotQuantized) {
  const Json skip = {{"llm_int8_skip_modules", {"model.layers.1", "up_proj"}}};
  const ConfiguredWeights weights(model(false, skip));
  EXPECT_EQ(weights.find("model.layers.1.mlp.down_proj.weight"), nullptr);
  EXPECT_EQ(weights.find("model.layers.0.mlp.up_proj.weight"), nullptr);
  EXPECT_NE(weights.find("model.layers.0.mlp.down_proj.weight"), nullptr);
  EXPECT_NE(weights.find("lm_head.weight"), nullptr);  // the list stands for the default
  EXPECT_EQ(ConfiguredWeights(model(true, skip)).find("lm_head.weight"), nullptr);
}

TEST_F(ConfiguredWeightsTest, AnUnknownTypeIsAnError) {
  try {
    const ConfiguredWeights weights(model(true, {{"bnb_4bit_quant_type", "nf5"}}));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("quantization_config.bnb_4bit_quant_type is \"nf5\"; expected"));
  }
}

TEST_F(ConfiguredWeightsTest, AFolderWithAConfigAloneHoldsNoWeights) {
  model(true, Json::object());
  EXPECT_FALSE(holds_weights(open_model(folder_)));
  write_text_file(folder_ / "model.safetensors", "");
  EXPECT_TRUE(holds_weights(open_model(folder_)));
}

}  // namespace
}  // namespace heddle
