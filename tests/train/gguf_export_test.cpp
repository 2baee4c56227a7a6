#include "train/gguf_export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/json.h"
#include "quantize/decode.h"
#include "train/gguf_export_model.h"
#include "train/gguf_export_tokenizer.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

fs::path data_folder() {
  const char* data = std::getenv("HEDDLE_DATA");
  return data != nullptr ? data : HEDDLE_SOURCE_DIR "/../shared/data";
}

/// A folder of its own for each test, removed after it.
class GgufExport : public testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(data_folder())) GTEST_SKIP() << data_folder() << " is absent";
    fs::create_directories(folder_);
  }
  ~GgufExport() override { fs::remove_all(folder_); }

  fs::path stories() const { return data_folder() / "models/stories260K/hf"; }

  /// The stories model with other keys in its config.json.
  fs::path with_keys(const Json& keys) const {
    const fs::path model = folder_ / "model";
    fs::create_directories(model);
    for (const char* name : {"model.safetensors", "tokenizer.json"}) {
      fs::copy_file(stories() / name, model / name, fs::copy_options::overwrite_existing);
    }
    Json config = read_json_file(stories() / "config.json");
    config.update(keys);
    std::ofstream(model / "config.json") << config.dump();
    return model;
  }

  std::string error_of_export(const fs::path& model, std::optional<DType> type = {}) const {
    try {
      export_gguf(open_model(model), folder_ / "out.gguf", type);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  /// tokenizer.ggml.* of a folder with that file as `name`.
  GgufMetadata tokenizer_keys(const fs::path& file, const char* name, std::int64_t vocab_size) const {
    fs::create_directories(folder_ / "tokenizer");
    fs::copy_file(file, folder_ / "tokenizer" / name);
    ModelConfig config;
    config.vocab_size = vocab_size;
    GgufMetadata metadata("out.gguf");
    add_gguf_tokenizer_keys(folder_ / "tokenizer", config, metadata);
    return metadata;
  }

  fs::path folder_ = fs::temp_directory_path() /
                     (std::string("heddle_gguf_export_") +
                      testing::UnitTest::GetInstance()->current_test_info()->name() + "_" + std::to_string(::getpid()));
};

TEST_F(GgufExport, ReadsBackAsTheBytesThatWereExported) {
  const ModelSource model = open_model(stories());
  export_gguf(model, folder_ / "out.gguf", std::nullopt);
  const auto want = open_weights(model), got = open_weights(open_model(folder_ / "out.gguf"));
  ASSERT_EQ(got->tensors().size(), want->tensors().size());
  for (const StoredTensor* tensor : want->tensors()) {
    const StoredTensor* other = got->find(tensor->name);
    ASSERT_NE(other, nullptr) << tensor->name;
    ASSERT_EQ(other->dtype, tensor->dtype);
    std::vector<std::byte> a(tensor->bytes()), b(other->bytes());
    want->read(*tensor, 0, a);
    got->read(*other, 0, b);
    EXPECT_EQ(a, b) << tensor->name;
  }
}

// The converter's permutation (Hugging Face's halves of a head to neighbours): row 1 of a head of 8 comes from row 4.
TEST_F(GgufExport, PutsRowsOfQInTheOrderOfLlamaCpp) {
  const ModelSource model = open_model(stories());
  export_gguf(model, folder_ / "out.gguf", std::nullopt);
  const auto files = open_weights(model);
  const GgufFile file(folder_ / "out.gguf");
  constexpr std::size_t kRow = 64 * sizeof(float);
  std::vector<std::byte> a(kRow), b(kRow);
  for (const auto& [row, from] : {std::pair{1, 4}, std::pair{2, 1}, std::pair{7, 7}, std::pair{8 + 3, 8 + 5}}) {
    file.read(*file.find("blk.2.attn_q.weight"), static_cast<std::size_t>(row) * kRow, a);
    files->read(*files->find("model.layers.2.self_attn.q_proj.weight"), static_cast<std::size_t>(from) * kRow, b);
    EXPECT_EQ(a, b) << row;
  }
}

TEST_F(GgufExport, QuantizesMatricesAndKeepsNormsInF32) {
  export_gguf(open_model(stories()), folder_ / "out.gguf", DType::q8_0);
  const GgufFile file(folder_ / "out.gguf");
  EXPECT_EQ(file.find("blk.0.attn_norm.weight")->dtype, DType::f32);
  EXPECT_EQ(file.find("blk.0.ffn_up.weight")->dtype, DType::q8_0);
  EXPECT_EQ(file.find("blk.0.ffn_down.weight")->dtype, DType::f16) << "rows of 172 are no blocks";
  EXPECT_EQ(file.metadata().find("general.file_type"), nullptr) << "of a mixture there is no number";
  const GgufFile other(data_folder() / "models/stories260K/stories260K-q8_0.gguf");  // by ggml's own quantizer
  for (const char* name : {"token_embd.weight", "blk.3.attn_k.weight", "blk.1.ffn_gate.weight"}) {
    std::vector<std::byte> a(file.find(name)->bytes()), b(other.find(name)->bytes());
    file.read(*file.find(name), 0, a);
    other.read(*other.find(name), 0, b);
    EXPECT_EQ(a, b) << name;
  }
}

TEST_F(GgufExport, WritesTheKeysOfTheConverter) {
  export_gguf(open_model(stories()), folder_ / "out.gguf", DType::f16);
  const GgufFile file(folder_ / "out.gguf");
  const GgufMetadata& keys = file.metadata();
  EXPECT_EQ(keys.text("general.architecture"), "llama");
  EXPECT_EQ(keys.integer("general.file_type", 0, 99), 1);  // MOSTLY_F16
  EXPECT_EQ(keys.text("general.size_label"), "260K");
  EXPECT_EQ(keys.integer("llama.rope.dimension_count", 0, 99), 8);
  EXPECT_EQ(keys.integer("llama.attention.head_count_kv", 0, 99), 4);
  EXPECT_EQ(keys.number("llama.attention.layer_norm_rms_epsilon"), double{1e-5f});
  EXPECT_EQ(keys.text("tokenizer.ggml.model"), "llama");
  EXPECT_EQ(keys.integer("tokenizer.ggml.bos_token_id", 0, 99), 1);
  EXPECT_TRUE(keys.boolean_or("tokenizer.ggml.add_bos_token", false));
}

TEST_F(GgufExport, RefusesWhatGgufCannotSay) {
  const auto dynamic = with_keys({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}});
  EXPECT_THAT(error_of_export(dynamic), HasSubstr("positions cannot be said in GGUF"));
  EXPECT_TRUE(fs::is_empty(folder_) || !fs::exists(folder_ / "out.gguf"));
  EXPECT_FALSE(fs::exists(folder_ / "out.gguf.partial"));
  EXPECT_EQ(error_of_export(with_keys({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}})), "no error");
}

// gguf-vocab files of llama.cpp, made by its converter from the same tokenizers.
TEST_F(GgufExport, SentencePieceModelGivesTheVocabularyOfTheConverter) {
  const auto got = tokenizer_keys(data_folder() / "tokenizers/llama2_tokenizer.model", "tokenizer.model", 32000);
  const GgufFile want(data_folder() / "tokenizers/llamacpp/ggml-vocab-llama-spm.gguf");
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"}) {
    EXPECT_TRUE(*got.find(key) == *want.metadata().find(key)) << key;
  }
  EXPECT_EQ(got.text("tokenizer.ggml.model"), "llama");
}

TEST_F(GgufExport, ByteLevelTokenizerGivesTheVocabularyOfTheConverter) {
  const auto got = tokenizer_keys(data_folder() / "tokenizers/hf_json/gpt2.tokenizer.json", "tokenizer.json", 50257);
  const GgufFile want(data_folder() / "tokenizers/llamacpp/ggml-vocab-gpt-2.gguf");
  for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
                          "tokenizer.ggml.token_type", "tokenizer.ggml.merges"}) {
    ASSERT_NE(got.find(key), nullptr) << key;
    EXPECT_TRUE(*got.find(key) == *want.metadata().find(key)) << key;
  }
}

TEST_F(GgufExport, Llama3TokenizerGivesTheVocabularyOfTheConverter) {
  const auto got = tokenizer_keys(data_folder() / "tokenizers/hf_json/llama3.tokenizer.json", "tokenizer.json", 128256);
  const GgufFile want(data_folder() / "tokenizers/llamacpp/ggml-vocab-llama-bpe.gguf");
  for (const char* key : {"tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens",
                          "tokenizer.ggml.token_type", "tokenizer.ggml.merges"}) {
    ASSERT_NE(got.find(key), nullptr) << key;
    EXPECT_TRUE(*got.find(key) == *want.metadata().find(key)) << key;
  }
}

TEST_F(GgufExport, QwenTokenizerHasItsPreTokenizersName) {
  const auto got = tokenizer_keys(data_folder() / "tokenizers/hf_json/qwen3.tokenizer.json", "tokenizer.json", 151936);
  EXPECT_EQ(got.text("tokenizer.ggml.pre"), "qwen2");
  const auto& tokens = *got.texts("tokenizer.ggml.tokens");
  ASSERT_EQ(tokens.size(), 151936u);
  EXPECT_EQ(tokens.back(), "[PAD151935]");  // the table is larger than the vocabulary
  EXPECT_EQ(got.integers("tokenizer.ggml.token_type")->back(), 5);
}

// The formula of Llama 3.1's announcement, as transformers has it: wavelengths above 8192 are stretched by 8.
TEST(GgufExportModel, Llama3RopeBecomesFactors) {
  ModelConfig config;
  config.head_dim = 128;
  config.max_positions = 131072;
  config.rope.type = RopeType::llama3;
  config.rope.theta = 500000.0;
  config.rope.factor = 8.0;
  config.rope.original_max_position_embeddings = 8192;
  config.rope.low_freq_factor = 1.0;
  config.rope.high_freq_factor = 4.0;
  const auto tensors = gguf_rope_factors(config);
  ASSERT_EQ(tensors.size(), 1u);
  EXPECT_EQ(tensors[0].name, "rope_freqs.weight");
  ASSERT_EQ(tensors[0].values.size(), 64u);
  constexpr double kTurn = 6.283185307179586;
  for (std::size_t i = 0; i < 64; ++i) {
    const double wavelength = kTurn * std::pow(500000.0, static_cast<double>(i) / 64.0);
    const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
    const double factor = wavelength > 8192.0 ? 8.0 : wavelength < 2048.0 ? 1.0 : 1.0 / ((1.0 - smooth) / 8.0 + smooth);
    EXPECT_NEAR(tensors[0].values[i], factor, 1e-6 * factor) << i;
  }
}

TEST(GgufExportModel, DifferencesAreFoundByName) {
  ModelConfig a;
  a.num_layers = 2;
  a.head_dim = 8;
  a.max_positions = 64;
  EXPECT_EQ(gguf_difference(a, a), "");
  ModelConfig b = a;
  b.attention_scale = 1.0 / std::sqrt(8.0);  // what 0 stands for
  EXPECT_EQ(gguf_difference(a, b), "");
  b.sliding_window = 64;  // no position is that far away
  EXPECT_EQ(gguf_difference(a, b), "");
  b.sliding_window = 16;
  b.layer_is_sliding = {false, true};
  EXPECT_EQ(gguf_difference(a, b), "the window of layer 1");
  b = a;
  b.rope.theta = 1e6;
  EXPECT_EQ(gguf_difference(a, b), "rope at 1 positions");
  b = a;
  b.final_softcap = 30;
  EXPECT_EQ(gguf_difference(a, b), "final_logit_softcapping");
}

}  // namespace
}  // namespace heddle
