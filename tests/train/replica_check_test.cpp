#include "train/replica_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "base/threads.h"
#include "comm/job.h"
#include "kernels/cpu/table.h"
#include "models/model_config.h"
#include "program/optimizer.h"
#include "train/compile.h"
#include "train/weights.h"

namespace heddle {
namespace {

using testing::HasSubstr;

constexpr const char* kConfig = R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 24,
  "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 40,
  "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
  "tie_word_embeddings": true})";
constexpr const char* kNorm = "model.norm.weight";

/// Changes one bit of a buffer.
void flip(const Executor& executor, const std::string& label) {
  *static_cast<unsigned char*>(executor.persistent(label).data) ^= 1;
}

/// What check_replicas says after `damage` on each rank of a fresh run; empty: nothing.
std::string said(int ranks, int stage, const std::function<void(int rank, const Executor&)>& damage,
                 Precision precision = Precision::fp32, OffloadDevice offload = OffloadDevice::none) {
  RunConfig run;
  run.max_length = 8;
  run.threads = 1;
  run.zero_stage = stage;
  run.ranks = ranks;
  run.precision = precision;
  run.offload_optimizer = offload;
  try {
    run_ranks(ranks, [&](Communicator& group) {
      set_threads(1);
      const CompiledRun compiled =
          compile_training(parse_model_config(kConfig, "config.json"), run, {}, {16, 2}, std::nullopt, group.rank());
      Executor executor(compiled.program_list(), compiled.plan, cpu::find_kernel, 1, &group);
      initialize_weights(compiled.parameters, 3, compiled.sharding, executor);
      EXPECT_EQ(has_replicas(compiled.parameters, compiled.sharding), ranks > 1 && stage < 3);
      check_replicas(1, executor, compiled.parameters, compiled.sharding, group);
      damage(group.rank(), executor);
      check_replicas(2, executor, compiled.parameters, compiled.sharding, group);
      return 0;
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ReplicaCheck, ARankWithAnotherWeightIsNamed) {
  for (const int stage : {0, 1, 2}) {
    const auto text = said(4, stage, [](int rank, const Executor& executor) {
      if (rank == 2) flip(executor, kNorm);
    });
    EXPECT_THAT(text, HasSubstr("step 2: ranks do not hold the same bits (check_replicas_steps): of weight "
                                "model.norm.weight rank 2 has other bits than the 3 that agree"))
        << "stage " << stage;
  }
}

TEST(ReplicaCheck, StatesCountWhereTheyAreReplicated) {
  const auto damage = [](int rank, const Executor& executor) {
    if (rank == 0) flip(executor, state_label(kNorm, "exp_avg"));
  };
  EXPECT_THAT(said(3, 0, damage), HasSubstr("exp_avg of model.norm.weight rank 0 has"));
  EXPECT_THAT(said(3, 0, damage, Precision::bf16, OffloadDevice::cpu), HasSubstr("rank 0 has"));
  EXPECT_EQ(said(3, 1, damage), "");
  const auto master = [](int rank, const Executor& executor) {
    if (rank == 1) flip(executor, master_label(kNorm));
  };
  EXPECT_THAT(said(3, 0, master, Precision::bf16), HasSubstr("master weight of model.norm.weight rank"));
  EXPECT_EQ(said(3, 1, master, Precision::bf16), "");
}

TEST(ReplicaCheck, WithoutAMajorityNobodyIsAccused) {
  const auto text = said(2, 0, [](int rank, const Executor& executor) {
    if (rank == 1) flip(executor, kNorm);
  });
  EXPECT_THAT(text, HasSubstr("no majority tells which is right: alike are rank 0; rank 1"));
}

TEST(ReplicaCheck, AlikeRanksAndThoseThatShareEverythingPass) {
  EXPECT_EQ(said(3, 0, [](int, const Executor& executor) { flip(executor, kNorm); }), "");
  EXPECT_EQ(said(2, 3,
                 [](int rank, const Executor& executor) {
                   if (rank == 1) flip(executor, kNorm);
                 }),
            "");
  EXPECT_EQ(said(1, 0, [](int, const Executor& executor) { flip(executor, kNorm); }), "");
}

}  // namespace
}  // namespace heddle
