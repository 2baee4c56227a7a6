// Weights that a run freezes leave as they came, cost nothing, and change no bit of the others; groups of weights step
// as the formula of their learning rate and decay says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "formats/safetensors.h"
#include "small_run.h"
#include "train/checkpoint_export.h"
#include "train/run_setup.h"
#include "train/trainer.h"

namespace heddle::endtoend {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// The bytes of a tensor.
std::string bytes_of(const fs::path& folder, const std::string& name) {
  const SafetensorsFile file(folder / "model.safetensors");
  const StoredTensor* tensor = file.find(name);
  std::string bytes(tensor == nullptr ? 0 : tensor->bytes(), '\0');
  if (tensor != nullptr) file.read(*tensor, 0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

class Freeze : public testing::Test {
 protected:
  void SetUp() override {
    Json config = llama_config();
    config["tie_word_embeddings"] = false;
    Json run = small_run(folder_.path(), config, "base");
    run["max_steps"] = 1;
    ASSERT_EQ(train(run_file(run)), 0);
  }

  Json run(const std::string& name, const Json& changes) const {
    Json run = small_run(folder_.path(), llama_config(), name);
    run.erase("config_name");
    run.update({{"model_name_or_path", (folder_.path() / "base").string()},
                {"threads", 1},
                {"max_steps", 4},
                {"weight_decay", 0.1},
                {"lr_scheduler_type", "constant"}});
    run.update(changes);
    return run;
  }
  fs::path train_as(const std::string& name, const Json& changes) const {
    EXPECT_EQ(train(run_file(run(name, changes))), 0) << changes.dump();
    EXPECT_EQ(read_file(folder_.path() / name / "plan.json"), read_file(folder_.path() / name / "memory.json"));
    return folder_.path() / name;
  }
  std::string weights_of(const fs::path& folder) const { return read_file(folder / "model.safetensors"); }

  TemporaryFolder folder_;
};

const Json kFrozen = {{"freeze", {"model.embed_tokens", "model.layers.0"}}};
constexpr const char* kFrozenName = "model.layers.0.mlp.up_proj.weight";
constexpr const char* kTrainedName = "model.layers.1.mlp.up_proj.weight";

TEST_F(Freeze, FrozenWeightsLeaveAsTheyCameInAnyPrecision) {
  for (const char* precision : {"", "bf16"}) {  // the base is fp32: what bf16 held would not be its bytes
    Json changes = kFrozen;
    if (*precision != '\0') changes[precision] = true;
    const fs::path out = train_as("out", changes), base = folder_.path() / "base";
    EXPECT_EQ(bytes_of(out, kFrozenName), bytes_of(base, kFrozenName));
    EXPECT_EQ(bytes_of(out, "model.embed_tokens.weight"), bytes_of(base, "model.embed_tokens.weight"));
    EXPECT_NE(bytes_of(out, kTrainedName), bytes_of(base, kTrainedName));
  }
}

TEST_F(Freeze, ChangesNothingButWhatAGroupWithoutALearningRateDoes) {
  const Json still = {{"param_groups", Json::array({{{"params", kFrozen["freeze"]}, {"lr_scale", 0}}})},
                      {"max_grad_norm", 0}};
  Json frozen = kFrozen;
  frozen["max_grad_norm"] = 0;
  EXPECT_EQ(weights_of(train_as("frozen", frozen)), weights_of(train_as("still", still)));
}

TEST_F(Freeze, FrozenWeightsCostNeitherMemoryNorABackward) {
  const RunConfig config = run_file(run("out", kFrozen)).config();
  const ModelSource model = open_run_model(config);
  const CompiledRun compiled = compile_run(config, model, nullptr, load_run_data(config, model));
  const auto& step = compiled.programs[static_cast<std::size_t>(compiled.micro_batch)];
  std::vector<std::string> units;
  for (const auto& instruction : step.instructions) {
    if (instruction.phase == Phase::backward) units.push_back(step.units[static_cast<std::size_t>(instruction.unit)]);
  }
  EXPECT_THAT(units, testing::Contains("block 1"));
  EXPECT_THAT(units, testing::Not(testing::Contains("block 0")));
  EXPECT_THAT(units, testing::Not(testing::Contains("embedding")));
  for (const auto& program : compiled.programs) {
    for (const auto& buffer : program.buffers) {
      EXPECT_FALSE(buffer.buffer_class == BufferClass::gradients && buffer.label.starts_with("model.layers.0."))
          << buffer.label;
      EXPECT_NE(buffer.label, state_label(kFrozenName, "exp_avg"));
    }
  }
}

TEST_F(Freeze, GivesTheBitsOfThePlainRunInAnyLayout) {
  const std::string plain = weights_of(train_as("plain", kFrozen));
  const std::vector<Json> layouts = {{{"ranks", 2}, {"gradient_accumulation_steps", 1}, {"zero_stage", 3}},
                                     {{"ranks", 2}, {"gradient_accumulation_steps", 1}, {"zero_stage", 1}},
                                     {{"offload_optimizer", "cpu"}, {"offload_param", "cpu"}, {"recompute", "full"}}};
  for (Json changes : layouts) {
    changes.update(kFrozen);
    EXPECT_EQ(weights_of(train_as("other", changes)), plain) << changes.dump();
  }
}

TEST_F(Freeze, CheckpointsLeaveFrozenWeightsOutAndServeWithTheirBase) {
  Json changes = kFrozen;
  changes.update({{"save_steps", 2}});
  const fs::path whole = train_as("whole", changes);
  const Checkpoint checkpoint(whole / "checkpoint-4");
  EXPECT_FALSE(checkpoint.tensors().contains(std::string("weights/") + kFrozenName));
  EXPECT_TRUE(checkpoint.tensors().contains(std::string("weights/") + kTrainedName));
  export_checkpoint(checkpoint, folder_.path() / "exported");
  EXPECT_EQ(weights_of(folder_.path() / "exported"), weights_of(whole));

  changes["max_steps"] = 2;
  train_as("resumed", changes);
  changes["max_steps"] = 4;
  EXPECT_EQ(weights_of(train_as("resumed", changes)), weights_of(whole));

  const auto files = open_weights(open_model(checkpoint.folder()));
  ASSERT_NE(files->find(kFrozenName), nullptr);
  std::string bytes(files->find(kFrozenName)->bytes(), '\0');
  files->read(*files->find(kFrozenName), 0, std::as_writable_bytes(std::span(bytes)));
  EXPECT_EQ(bytes, bytes_of(whole, kFrozenName));

  fs::rename(folder_.path() / "base", folder_.path() / "moved");
  EXPECT_THAT([&] { open_weights(open_model(checkpoint.folder())); },
              testing::ThrowsMessage<Error>(HasSubstr("its base model " + (folder_.path() / "base").string())));
}

TEST_F(Freeze, AFreshModelHasNothingToFreeze) {
  Json fresh = run("fresh", {{"freeze", "model.layers.0"}});
  fresh.erase("model_name_or_path");
  fresh["config_name"] = (folder_.path() / "config.json").string();
  EXPECT_THAT([&] { train(run_file(fresh)); }, testing::ThrowsMessage<Error>(HasSubstr("expected model_name_or_path")));
}

TEST_F(Freeze, AGroupOfAllWeightsIsARunWithItsNumbers) {
  for (const char* optim : {"adamw", "adamw_8bit", "lion", "sgd", "adafactor", "muon"}) {
    Json grouped = {{"optim", optim},
                    {"param_groups", Json::array({{{"params", "*"}, {"lr_scale", 2}, {"weight_decay", 0.3}}})}};
    const Json plain = {{"optim", optim}, {"learning_rate", 2e-3}, {"weight_decay", 0.3}};
    const std::string want = weights_of(train_as("plain", plain));
    EXPECT_EQ(weights_of(train_as("grouped", grouped)), want) << optim;
    grouped["param_groups"] =
        Json::array({{{"params", Json::array({"*"})}, {"learning_rate", 2e-3}, {"weight_decay", 0.3}}});
    EXPECT_EQ(weights_of(train_as("grouped", grouped)), want) << optim;
  }
}

}  // namespace
}  // namespace heddle::endtoend
