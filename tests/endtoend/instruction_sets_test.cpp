#include <gtest/gtest.h>

#include <string>

#include "../kernels/instruction_sets.h"
#include "small_run.h"
#include "train/trainer.h"

namespace heddle::endtoend {
namespace {

// Highway's portable code, for processors without AVX2, rounds each product of a multiply-add.
bool fuses_multiply_adds(const std::string& name) { return name != "EMU128" && name != "SCALAR"; }

/// Losses and weights of a run that sums over rows of a length that no vector divides.
std::string train_once(const std::filesystem::path& folder, Json config, const std::string& name, const Json& changes) {
  if (config["model_type"] == "gpt2") {
    config["n_embd"] = 36;
  } else {
    config["hidden_size"] = 36;
    config["head_dim"] = 10;
  }
  Json run = small_run(folder, config, name);
  run.update({{"max_steps", 3}, {"max_grad_norm", 0.5}});
  run.update(changes);
  EXPECT_EQ(train(run_file(run)), 0);
  const std::string losses = trajectory(folder / name);
  EXPECT_FALSE(losses.empty());
  return losses + read_file(folder / name / "model.safetensors");
}

class InstructionSets : public testing::TestWithParam<const char*> {};

TEST_P(InstructionSets, ThatFuseMultiplyAddsTrainToTheSameBits) {
  const Json config = GetParam() == std::string("gpt2") ? gpt2_config() : llama_config();
  const Json runs = Json::array(
      {Json::object(), {{"bf16", true}}, {{"fp16", true}}, {{"optim", "adafactor"}, {"label_smoothing_factor", 0.1}}});
  const TemporaryFolder folder;
  int compared = 0;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const Json& changes = runs[run];
    std::string expected;
    test::with_each_way_to_multiply([&](const char* name) {
      if (!fuses_multiply_adds(name)) return;
      // Arm's own bits, and AMX's.
      if (changes.contains("bf16") &&
          (cpu::bf16_pair_sum() == cpu::PairSum::to_odd || cpu::amx_tiles() != cpu::AmxTiles::none)) {
        return;
      }
      const std::string outcome = train_once(folder.path(), config, name + std::to_string(run), changes);
      if (expected.empty()) {
        expected = outcome;
      } else {
        ++compared;
        EXPECT_TRUE(outcome == expected) << name << ' ' << changes;
      }
    });
  }
  if (compared == 0) GTEST_SKIP() << "this processor has one such instruction set";
}

INSTANTIATE_TEST_SUITE_P(Families, InstructionSets, testing::Values("llama", "gpt2"),
                         [](const auto& family) { return std::string(family.param); });

}  // namespace
}  // namespace heddle::endtoend
