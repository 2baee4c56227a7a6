#include "train/snapshot_guard.h"

#include <gtest/gtest.h>

#include <thread>

#include "kernels/cpu/table.h"
#include "train/compile.h"
#include "train/training_state.h"

namespace heddle {
namespace {

constexpr const char* kConfig = R"({"model_type": "llama", "hidden_size": 36, "intermediate_size": 50,
  "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3, "vocab_size": 203,
  "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
  "tie_word_embeddings": true})";

struct Guarded {
  Guarded() {
    RunConfig run;
    run.max_length = 8;
    run.threads = 1;
    compiled = compile_training(parse_model_config(kConfig, "config.json"), run, {}, {16, 2}, std::nullopt);
    executor.emplace(compiled.program_list(), compiled.plan, cpu::find_kernel, 1);
    for (const auto& piece : checkpoint_pieces(*executor, compiled.parameters, compiled.sharding)) {
      memory.push_back(piece.bytes);
      bytes += piece.bytes.size();
    }
    guard.emplace(*executor, compiled.programs.size(), memory, snapshot);
  }
  std::vector<std::uint64_t> needed(int program) const {
    const auto index = static_cast<std::size_t>(program);
    std::vector<std::uint64_t> all;
    for (std::size_t i = 0; i < compiled.programs[index].instructions.size(); ++i)
      all.push_back(guard->needed(index, i));
    return all;
  }

  CompiledRun compiled;
  std::optional<Executor> executor;
  std::vector<std::span<const std::byte>> memory;
  std::uint64_t bytes = 0;
  Snapshot snapshot;
  std::optional<SnapshotGuard> guard;
};

TEST(SnapshotGuard, ForwardAndBackwardWaitForNothing) {
  const Guarded run;
  for (const int program : {run.compiled.micro_batch, run.compiled.norm}) {
    for (const auto position : run.needed(program)) EXPECT_EQ(position, 0u);
  }
}

// AdamW in fp32 updates weight, exp_avg and exp_avg_sq of one parameter by one instruction, 12 bytes an element, and
// saves have them in that order.
TEST(SnapshotGuard, AnUpdateNeedsItsOwnParameterAndWhatIsSavedBefore) {
  const Guarded run;
  std::vector<std::uint64_t> expected;
  std::uint64_t position = 0;
  for (const auto& parameter : run.compiled.parameters.list) {
    position += 12 * static_cast<std::uint64_t>(parameter.shape.elements());
    expected.push_back(position);
  }
  std::vector<std::uint64_t> found;
  for (const auto needed : run.needed(run.compiled.update)) {
    if (needed > 0) found.push_back(needed);
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(position, run.bytes);
}

TEST(SnapshotGuard, WaitsUntilTheSaveHasGotThere) {
  Guarded run;
  const auto update = static_cast<std::size_t>(run.compiled.update);
  std::size_t first = 0;
  while (run.guard->needed(update, first) == 0) ++first;
  EXPECT_FALSE(run.guard->before(update, first));  // no save is under way
  run.snapshot.begin();
  bool has_reached = false;
  std::thread saver([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    has_reached = true;
    run.snapshot.reach(run.guard->needed(update, first));
  });
  EXPECT_TRUE(run.guard->before(update, first));
  EXPECT_TRUE(has_reached);
  EXPECT_GT(run.guard->seconds(), 0);
  EXPECT_FALSE(run.guard->before(update, first));
  saver.join();
}

}  // namespace
}  // namespace heddle
