// Adapters of embeddings and heads: the bits of one rank in every layout, with a vocabulary that grew, and a head that
// is no longer tied.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/error.h"
#include "formats/safetensors.h"
#include "small_run.h"
#include "train/adapter_weights.h"
#include "train/folder_export.h"
#include "train/run_setup.h"
#include "train/trainer.h"

namespace heddle::endtoend {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// A byte-level vocabulary of 96 letters, and three tokens more than the model has.
void write_tokenizer(const fs::path& folder, int added) {
  Json vocabulary = Json::object(), tokens = Json::array();
  for (int id = 0; id < 96; ++id)
    vocabulary[std::string(1, static_cast<char>(' ' + id % 95)) + (id < 95 ? "" : "x")] = id;
  for (int i = 0; i < added; ++i) {
    tokens.push_back({{"id", 96 + i},
                      {"content", "<new" + std::to_string(i) + ">"},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", true}});
  }
  const Json document = {{"version", "1.0"},
                         {"truncation", nullptr},
                         {"padding", nullptr},
                         {"added_tokens", tokens},
                         {"normalizer", nullptr},
                         {"pre_tokenizer", nullptr},
                         {"post_processor", nullptr},
                         {"decoder", nullptr},
                         {"model",
                          {{"type", "BPE"},
                           {"dropout", nullptr},
                           {"unk_token", nullptr},
                           {"continuing_subword_prefix", nullptr},
                           {"end_of_word_suffix", nullptr},
                           {"fuse_unk", false},
                           {"byte_fallback", false},
                           {"vocab", vocabulary},
                           {"merges", Json::array()}}}};
  fs::create_directories(folder);
  std::ofstream(folder / "tokenizer.json") << document.dump();
}

class AdapterTables : public testing::Test {
 protected:
  void SetUp() override {
    Json run = small_run(folder_.path(), llama_config(), "base");  // tied
    run["max_steps"] = 1;
    ASSERT_EQ(train(run_file(run)), 0);
    write_tokenizer(folder_.path() / "tokens", 3);
  }
  Json run(const std::string& name, const Json& lora, const Json& changes) const {
    Json run = small_run(folder_.path(), llama_config(), name);
    run.erase("config_name");
    run.update({{"model_name_or_path", (folder_.path() / "base").string()},
                {"threads", 1},
                {"max_steps", 4},
                {"lora", lora},
                {"lr_scheduler_type", "constant"}});
    run.update(changes);
    return run;
  }
  fs::path train_as(const std::string& name, const Json& lora, const Json& changes) const {
    EXPECT_EQ(train(run_file(run(name, lora, changes))), 0) << changes.dump();
    EXPECT_EQ(read_file(folder_.path() / name / "plan.json"), read_file(folder_.path() / name / "memory.json"));
    return folder_.path() / name;
  }
  static std::string adapter_of(const fs::path& folder) { return read_file(folder / "adapter_model.safetensors"); }

  TemporaryFolder folder_;
};

const std::vector<Json> kLoras = {
    {{"r", 4}, {"target_modules", {"q_proj", "embed_tokens", "lm_head"}}, {"lora_dropout", 0.1}},
    {{"r", 4}, {"target_modules", Json::array({"q_proj"})}, {"modules_to_save", {"embed_tokens", "lm_head"}}},
    {{"r", 4},
     {"target_modules", Json::array({"q_proj"})},
     {"modules_to_save", Json::array({"embed_tokens"})},
     {"ensure_weight_tying", true}},
    {{"r", 4}, {"target_modules", Json::array({"q_proj"})}, {"trainable_token_indices", {95, 3, 40}}}};
const Json kDora = {{"r", 4}, {"target_modules", {"q_proj", "embed_tokens", "lm_head"}}, {"use_dora", true}};

TEST_F(AdapterTables, GiveTheBitsOfThePlainRunInAnyLayoutAndAfterAResume) {
  const std::vector<Json> layouts = {{{"ranks", 2}, {"gradient_accumulation_steps", 1}, {"zero_stage", 3}},
                                     {{"ranks", 2}, {"gradient_accumulation_steps", 1}, {"zero_stage", 1}},
                                     {{"offload_optimizer", "cpu"}, {"offload_param", "cpu"}, {"recompute", "full"}}};
  std::vector<Json> loras = kLoras;
  loras.push_back(kDora);
  for (std::size_t i = 0; i < loras.size(); ++i) {
    const std::string plain = adapter_of(train_as("plain", loras[i], Json::object()));
    for (const Json& layout : layouts)
      EXPECT_EQ(adapter_of(train_as("other", loras[i], layout)), plain) << i << " " << layout.dump();
    const std::string name = "resumed" + std::to_string(i);
    train_as(name, loras[i], {{"max_steps", 2}, {"save_steps", 2}});
    EXPECT_EQ(adapter_of(train_as(name, loras[i], {{"save_steps", 2}})), plain) << i;
  }
}

TEST_F(AdapterTables, ACheckpointServesAsTheAdapterThatItWouldBeExportedAs) {
  for (std::size_t i = 0; i < kLoras.size(); ++i) {
    const fs::path folder = train_as("run" + std::to_string(i), kLoras[i], {{"max_steps", 2}, {"save_steps", 2}});
    const auto of_folder = open_adapter_weights(folder), of_checkpoint = open_adapter_weights(folder / "checkpoint-2");
    EXPECT_GT(of_checkpoint->tensors().size(), 0u);
    for (const StoredTensor* tensor : of_checkpoint->tensors()) {
      const StoredTensor* other = of_folder->find(tensor->name);
      ASSERT_NE(other, nullptr) << tensor->name;
      ASSERT_EQ(tensor->shape, other->shape) << tensor->name;
      std::vector<std::byte> a(tensor->bytes()), b(other->bytes());
      of_checkpoint->read(*tensor, 0, a);
      of_folder->read(*other, 0, b);
      EXPECT_EQ(a, b) << tensor->name;
    }
    const auto first_loss = [&](const fs::path& adapter) {
      return trajectory(train_as("on", nullptr, {{"adapter_name_or_path", adapter.string()}, {"max_steps", 1}}));
    };
    EXPECT_EQ(first_loss(folder / "checkpoint-2"), first_loss(folder)) << i;
  }
}

TEST_F(AdapterTables, AFreshOneChangesNoLogit) {
  const Json still = {{"learning_rate", 0.0}, {"max_steps", 1}};
  Json plain = run("plain", nullptr, still);
  ASSERT_EQ(train(run_file(plain)), 0);
  const std::string want = trajectory(folder_.path() / "plain");
  for (Json lora : kLoras) {
    lora["lora_dropout"] = 0.0;
    const std::string got = trajectory(train_as("still", lora, still));
    EXPECT_EQ(got.substr(0, got.find(' ')), want.substr(0, want.find(' '))) << lora.dump();
  }
}

TEST_F(AdapterTables, NewTokensTrainAndServeWithTheAdaptersOwnTokenizer) {
  const Json grown = {{"resize_token_embeddings", true}, {"tokenizer_name", (folder_.path() / "tokens").string()}};
  const fs::path out = train_as("grown", kLoras[1], grown);
  const SafetensorsFile file(out / "adapter_model.safetensors");
  for (const char* name : {"base_model.model.model.embed_tokens.weight", "base_model.model.lm_head.weight"}) {
    ASSERT_NE(file.find(name), nullptr);
    EXPECT_EQ(file.find(name)->shape, (std::vector<std::int64_t>{99, 32}));
  }
  const ModelSource served = open_model(out);
  EXPECT_EQ(served.config.vocab_size, 99);
  EXPECT_EQ(served.tokenizer_folder, out);
  EXPECT_EQ(open_tokenizer("", served.tokenizer_folder)->vocab_size(), 99);
  EXPECT_THAT(
      [&] {
        train(run_file(run("unsaved", {{"target_modules", Json::array({"q_proj"})}}, grown)));
      },
      testing::ThrowsMessage<Error>(HasSubstr("expected lora.modules_to_save")));
}

TEST_F(AdapterTables, NewTokensMayBeRowsAlone) {
  const Json grown = {{"resize_token_embeddings", true}, {"tokenizer_name", (folder_.path() / "tokens").string()}};
  Json lora = {{"r", 4}, {"target_modules", Json::array({"q_proj"})}, {"trainable_token_indices", {96, 98, 97}}};
  const fs::path out = train_as("rows", lora, grown);
  const SafetensorsFile adapter(out / "adapter_model.safetensors");
  const StoredTensor* rows = adapter.find("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta");
  ASSERT_NE(rows, nullptr);
  EXPECT_EQ(rows->shape, (std::vector<std::int64_t>{3, 32}));
  const ModelSource served = open_model(out);
  EXPECT_EQ(served.config.vocab_size, 99);
  // Merged: the base's rows as they were, then those that were trained, by id.
  export_folder(served, folder_.path() / "merged", std::nullopt);
  const auto bytes_of = [](const SafetensorsFile& file, const StoredTensor& tensor) {
    std::vector<std::byte> bytes(tensor.bytes());
    file.read(tensor, 0, bytes);
    return bytes;
  };
  const SafetensorsFile base(folder_.path() / "base" / "model.safetensors");
  const SafetensorsFile merged(folder_.path() / "merged" / "model.safetensors");
  std::vector<std::byte> want = bytes_of(base, *base.find("model.embed_tokens.weight"));
  const std::vector<std::byte> trained = bytes_of(adapter, *rows);
  for (const std::size_t row : {0u, 2u, 1u})
    want.insert(want.end(), trained.begin() + row * 128, trained.begin() + (row + 1) * 128);
  EXPECT_EQ(bytes_of(merged, *merged.find("model.embed_tokens.weight")), want);
  lora["trainable_token_indices"] = {96, 97};
  EXPECT_THAT([&] { train(run_file(run("some", lora, grown))); },
              testing::ThrowsMessage<Error>(HasSubstr("or them, up to 98, in lora.trainable_token_indices")));
}

std::vector<float> values_of(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor& tensor = *file.find(name);
  std::vector<float> values(tensor.bytes() / sizeof(float));
  file.read(tensor, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

/// The nearest code of NF4 (Dettmers et al. 2023, arXiv:2305.14314, appendix E) times the block's greatest.
double nf4(double value, double greatest) {
  constexpr std::array kCodes = {-1.0,
                                 -0.6961928009986877,
                                 -0.5250730514526367,
                                 -0.39491748809814453,
                                 -0.28444138169288635,
                                 -0.18477343022823334,
                                 -0.09105003625154495,
                                 0.0,
                                 0.07958029955625534,
                                 0.16093020141124725,
                                 0.24611230194568634,
                                 0.33791524171829224,
                                 0.44070982933044434,
                                 0.5626170039176941,
                                 0.7229568362236023,
                                 1.0};
  const auto nearer = [&](double a, double b) {
    return std::abs(a * greatest - value) < std::abs(b * greatest - value);
  };
  return *std::min_element(kCodes.begin(), kCodes.end(), nearer) * greatest;
}

TEST_F(AdapterTables, MergingSaysHowFarTheBaseIsFromTheOneInFourBits) {
  const Json lora = {{"r", 4}, {"target_modules", Json::array({"q_proj"})}};
  const fs::path out = train_as("four_bits", lora, {{"load_in_4bit", true}, {"learning_rate", 0.05}});
  const MergeReport report = export_folder(open_model(out), folder_.path() / "merged", std::nullopt);
  ASSERT_EQ(report.base_type(), DType::nf4);
  const SafetensorsFile base(folder_.path() / "base" / "model.safetensors");
  const SafetensorsFile merged(folder_.path() / "merged" / "model.safetensors");
  double errors = 0, changes = 0;
  for (const char* name : {"model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.q_proj.weight"}) {
    const std::vector<float> before = values_of(base, name), after = values_of(merged, name);
    ASSERT_EQ(before.size() % 64, 0u);
    for (std::size_t i = 0; i < before.size(); ++i) {
      float greatest = 0;
      for (std::size_t k = i / 64 * 64; k < i / 64 * 64 + 64; ++k) greatest = std::max(greatest, std::abs(before[k]));
      const double value = static_cast<double>(before[i]);
      errors += std::pow(nf4(value, static_cast<double>(greatest)) - value, 2);
      changes += std::pow(static_cast<double>(after[i]) - value, 2);
    }
  }
  EXPECT_NEAR(report.base_error() / std::sqrt(errors / changes), 1.0, 1e-4);  // what is merged is rounded to fp32
}

TEST_F(AdapterTables, AnAdapterOfABaseThatWasNotQuantizedSaysNothingOfIt) {
  const Json lora = {{"r", 4}, {"target_modules", Json::array({"q_proj"})}};
  const fs::path out = train_as("plain", lora, {{"max_steps", 1}});
  EXPECT_EQ(export_folder(open_model(out), folder_.path() / "merged", std::nullopt).base_type(), std::nullopt);
}

TEST_F(AdapterTables, AVocabularyGrowsToTheTokenizersAndIsNeverCut) {
  const auto shape_of = [&](const Json& changes) {
    Json grown = run("whole", nullptr, changes);
    EXPECT_EQ(train(run_file(grown)), 0);
    const SafetensorsFile file(folder_.path() / "whole" / "model.safetensors");
    const Json config = parse_json(read_file(folder_.path() / "whole" / "config.json"), "config.json");
    EXPECT_EQ(config["vocab_size"], file.find("model.embed_tokens.weight")->shape[0]);
    return file.find("model.embed_tokens.weight")->shape[0];
  };
  const std::string tokens = (folder_.path() / "tokens").string();
  EXPECT_EQ(shape_of({{"tokenizer_name", tokens}}), 96);
  EXPECT_EQ(shape_of({{"tokenizer_name", tokens}, {"resize_token_embeddings", true}}), 99);
  EXPECT_EQ(shape_of({{"tokenizer_name", tokens}, {"resize_token_embeddings", true}, {"pad_to_multiple_of", 16}}), 112);
  write_tokenizer(folder_.path() / "few", 0);
  EXPECT_EQ(shape_of({{"tokenizer_name", (folder_.path() / "few").string()},
                      {"resize_token_embeddings", true},
                      {"pad_to_multiple_of", 64}}),
            96);
}

}  // namespace
}  // namespace heddle::endtoend
