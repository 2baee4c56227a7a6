// Ranks, whatever they share, compute what one rank computes; and they exchange no more than the ZeRO paper says.
#include <gtest/gtest.h>

#include <sstream>

#include "base/threads.h"
#include "comm/job.h"
#include "kernels/cpu/table.h"
#include "small_run.h"
#include "train/micro_batches.h"
#include "train/run_setup.h"
#include "train/trainer.h"
#include "train/weights.h"

namespace heddle::endtoend {
namespace {

struct Outcome {
  std::string losses, weights;
  bool operator==(const Outcome&) const = default;
};

/// Six micro-batches a step, divided among the ranks; 40 rows, so that the last step of the epoch is short of rows.
Outcome train_over(const std::filesystem::path& folder, const Json& config, int ranks, int stage, const Json& changes) {
  const std::string name = "out" + std::to_string(ranks) + std::to_string(stage);
  std::filesystem::remove_all(folder / name);
  Json run = small_run(folder, config, name);
  write_rows(folder / "rows.jsonl", 40);
  run.erase("max_steps");
  run.update({{"num_train_epochs", 1},
              {"ranks", ranks},
              {"zero_stage", stage},
              {"threads", 1},
              {"gradient_accumulation_steps", 6 / ranks}});
  run.update(changes);
  EXPECT_EQ(train(run_file(run)), 0);
  return {trajectory(folder / name), read_file(folder / name / "model.safetensors")};
}

struct Layout {
  const char* family;
  const char* precision;
  const char* recompute;
};

class Ranks : public testing::TestWithParam<Layout> {};

TEST_P(Ranks, GiveTheBitsOfOneRankAtEveryStage) {
  const Layout& layout = GetParam();
  const TemporaryFolder folder;
  const Json config = layout.family == std::string("gpt2") ? gpt2_config() : llama_config();  // gpt2 has dropout
  Json changes = {{"recompute", layout.recompute}};
  if (*layout.precision != '\0') changes[layout.precision] = true;
  const Outcome one = train_over(folder.path(), config, 1, 0, changes);
  ASSERT_FALSE(one.losses.empty());
  for (const int ranks : {2, 3, 6}) {
    for (const int stage : {0, 1, 2, 3}) {
      EXPECT_EQ(train_over(folder.path(), config, ranks, stage, changes), one) << ranks << " ranks, stage " << stage;
      const auto out = folder.path() / ("out" + std::to_string(ranks) + std::to_string(stage));
      EXPECT_EQ(read_file(out / "plan.json"), read_file(out / "memory.json")) << ranks << " ranks, stage " << stage;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Ranks,
                         testing::Values(Layout{"llama", "", "none"}, Layout{"gpt2", "", "full"},
                                         Layout{"llama", "bf16", "selective"}, Layout{"gpt2", "fp16", "none"}),
                         [](const auto& test) {
                           return std::string(test.param.family) + test.param.precision + test.param.recompute;
                         });

TEST(Ranks, OverlapAndThresholdChangeNoBit) {
  const TemporaryFolder folder;
  const auto with = [&](const Json& zero) {
    Json optimization = {{"stage", 3}};
    optimization.update(zero);
    return train_over(folder.path(), llama_config(), 2, 3,
                      {{"deepspeed", {{"zero_optimization", optimization}}}, {"threads", 2}});
  };
  const Outcome plain = with(Json::object());
  EXPECT_EQ(with({{"overlap_comm", false}}), plain);
  EXPECT_EQ(with({{"stage3_param_persistence_threshold", 1000}}), plain);
}

TEST(Ranks, FastReductionStaysWithinItsBound) {
  // The order of a few sums of floats: far below 1e-5 of the loss.
  const TemporaryFolder folder;
  const Outcome ordered = train_over(folder.path(), llama_config(), 3, 0, Json::object());
  for (const int stage : {0, 1, 2, 3}) {
    const Outcome fast = train_over(folder.path(), llama_config(), 3, stage, {{"reduction", "fast"}});
    std::istringstream a(ordered.losses), b(fast.losses);
    for (double x = 0, y = 0; a >> x && b >> y;) EXPECT_NEAR(x, y, 1e-5 * x) << stage;
  }
}

/// Elements exchanged in one optimizer step of one micro-batch a rank, padding included.
struct Volume {
  std::int64_t gathered, reduced, parameters;
};

Volume volume_of_step(int stage) {
  constexpr int kRanks = 4;
  const TemporaryFolder folder;
  Json run = small_run(folder.path(), llama_config(), "out");
  run.update({{"ranks", kRanks}, {"zero_stage", stage}, {"threads", 1}, {"gradient_accumulation_steps", 1}});
  const RunFile file = run_file(run);
  const ModelSource model = open_run_model(file.config());
  const RunData data = load_run_data(file.config(), model);
  Volume volume{};
  run_ranks(kRanks, [&](Communicator& communicator) {
    set_threads(1);
    const CompiledRun compiled = compile_run(file.config(), model, nullptr, data, communicator.rank());
    Executor executor(compiled.program_list(), compiled.plan, cpu::find_kernel, 1, &communicator);
    initialize_weights(compiled.parameters, 1, compiled.sharding, executor);
    const StreamFeed feed(executor);
    const BatchSchedule schedule(*data.train, batch_options(file.config()));
    communicator.reset_counters();
    Scalars scalars;
    MicroBatches batches(communicator);
    batches.run(schedule.step(0), scalars, [&](const MicroBatch& batch, std::int64_t) {
      feed.load(batch, scalars);
      executor.run(static_cast<std::size_t>(compiled.micro_batch), scalars);
      return 0.0;
    });
    executor.run(static_cast<std::size_t>(compiled.update), scalars);
    if (communicator.rank() == 0) {
      const auto& counters = communicator.counters();
      volume = {counters.of(Collective::all_gather).volume / 4, counters.of(Collective::reduce_scatter).volume / 4, 0};
      for (const auto& parameter : compiled.parameters.list)
        volume.parameters += compiled.sharding.partition(parameter.shape.elements()).padded();
    }
    return 0;
  });
  return volume;
}

TEST(Ranks, ExchangeWhatTheZeroPaperSays) {
  // Rajbhandari et al. 2020, section 7: 2 Psi elements a step in stages 0 to 2, at most 3 Psi in stage 3.
  for (const int stage : {0, 1, 2}) {
    const Volume volume = volume_of_step(stage);
    EXPECT_EQ(volume.reduced, volume.parameters) << stage;
    EXPECT_EQ(volume.gathered, volume.parameters) << stage;
  }
  const Volume volume = volume_of_step(3);
  EXPECT_EQ(volume.reduced, volume.parameters);
  EXPECT_LE(volume.gathered, 2 * volume.parameters);
  EXPECT_GT(volume.gathered, volume.parameters);
}

TEST(Ranks, AFailureOfOneEndsAll) {
  const TemporaryFolder folder;
  Json run = small_run(folder.path(), llama_config(), "out");
  run.update({{"ranks", 4}, {"device_memory", "64KiB"}});
  EXPECT_THROW(train(run_file(run)), std::exception);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "out"));
}

}  // namespace
}  // namespace heddle::endtoend
