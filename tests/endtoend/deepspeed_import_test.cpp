// A run that DeepSpeed began goes on here. The checkpoints are put together as DeepSpeed lays them out, of states that
// Heddle saved itself, so that the run must go on as if it had never been elsewhere. scripts/compare_deepspeed.py does
// the same with what DeepSpeed wrote.
#include "train/deepspeed_import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "formats/torch_files.h"
#include "small_run.h"
#include "train/trainer.h"

namespace heddle::endtoend {
namespace {

namespace fs = std::filesystem;
using namespace torch_files;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Floats = std::vector<float>;

constexpr std::array<const char*, 3> kKinds = {"weights/", "exp_avg/", "exp_avg_sq/"};

/// What another program's checkpoint says besides its tensors.
struct Told {
  std::int32_t steps = 3, skipped = 0, samples = 12;
  std::optional<float> updates = 3.0F;
  std::string scaler = none();
  bool has_moments = true;
  std::string frozen = {};  // a parameter that no optimizer has
};

/// "model.norm.weight", its shape, and its values of each kind.
struct Saved {
  std::string name;
  std::vector<std::int64_t> shape;
  std::array<Floats, 3> values;
};

class DeepSpeedImport : public testing::TestWithParam<int> {
 protected:
  Json run(const std::string& name, const Json& changes = Json::object()) const {
    Json run = small_run(folder_.path(), llama_config(), name);
    run.update({{"save_steps", 3}, {"lr_scheduler_type", "cosine"}, {"warmup_steps", 2}, {"weight_decay", 0.1}});
    run.update(changes);
    return run;
  }
  /// What it says on standard error.
  std::string train_as(const std::string& name, const Json& changes = Json::object()) const {
    testing::internal::CaptureStderr();
    EXPECT_EQ(train(run_file(run(name, changes))), 0);
    return testing::internal::GetCapturedStderr();
  }
  fs::path out(const std::string& name) const { return folder_.path() / name; }

  static std::vector<Saved> read(const Checkpoint& checkpoint) {
    std::vector<Saved> all;
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      if (!name.starts_with(kKinds[0])) continue;
      Saved saved{name.substr(std::strlen(kKinds[0])), tensor.shape, {}};
      for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
        Floats& values = saved.values[kind];
        values.resize(static_cast<std::size_t>(tensor.elements()));
        checkpoint.read(kKinds[kind] + saved.name, 0, tensor.elements(), DType::f32,
                        std::as_writable_bytes(std::span(values)));
      }
      all.push_back(std::move(saved));
    }
    return all;
  }

  /// A rank's part of a group: of stages 1 and 2 an even cut of its tensors end to end, of stage 3 of each tensor.
  static Floats part(const std::vector<Saved>& group, std::size_t kind, std::size_t rank, int stage) {
    constexpr float kPadding = 7.0F;
    Floats mine, flat;
    const auto cut = [&](const Floats& values, std::size_t each) {
      for (std::size_t i = rank * each; i < (rank + 1) * each; ++i)
        mine.push_back(i < values.size() ? values[i] : kPadding);
    };
    for (const Saved& saved : group) {
      const Floats& values = saved.values[kind];
      if (stage == 3) cut(values, (values.size() + kRanks - 1) / kRanks);
      flat.insert(flat.end(), values.begin(), values.end());
    }
    if (stage != 3) cut(flat, (flat.size() + kRanks - 1) / kRanks);
    return mine;
  }

  /// DeepSpeed's folder of that stage, of the state in `checkpoint`; matrices and vectors are parameter groups.
  fs::path write(const Checkpoint& checkpoint, int stage, const Told& told = {}) const {
    const fs::path folder = folder_.path() / "deepspeed" / "global_step3";
    std::vector<std::vector<Saved>> groups(2);
    std::string shapes, frozen_shape = "}", frozen_value = "}";
    TorchArchive model;
    for (Saved& saved : read(checkpoint)) {
      if (saved.name == told.frozen) {
        frozen_shape = dict({{saved.name, size(saved.shape)}});
        frozen_value = dict({{saved.name, model.tensor(saved.values[0], saved.shape, "FloatStorage")}});
      } else {
        groups[saved.shape.size() == 1 ? 1 : 0].push_back(std::move(saved));
      }
    }
    std::vector<std::string> group_shapes;
    for (const auto& group : groups) {
      Items items;
      for (const Saved& saved : group) items.emplace_back(saved.name, size(saved.shape));
      group_shapes.push_back(dict(items));
    }
    const std::string state = dict({{"buffer_names", list({})},
                                    {"module", "}"},
                                    {"param_shapes", list(group_shapes)},
                                    {"frozen_param_shapes", frozen_shape},
                                    {"frozen_param_fragments", frozen_value},
                                    {"global_steps", number(told.steps)},
                                    {"skipped_steps", number(told.skipped)},
                                    {"global_samples", number(told.samples)}});
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const std::string of_rank = "zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00";
      if (stage == 3 || rank == 0)
        model.save(folder / ((stage == 3 ? of_rank : "mp_rank_00") + "_model_states.pt"), state);
      TorchArchive archive;
      std::vector<std::string> fp32;
      std::string states = "}(";
      for (std::size_t i = 0; i < groups.size(); ++i) {
        fp32.push_back(archive.flat(part(groups[i], 0, rank, stage)));
        Items items;
        if (told.updates) items.emplace_back("step", archive.tensor(Floats{*told.updates}, {}, "FloatStorage"));
        if (told.has_moments) {
          items.emplace_back("exp_avg", archive.flat(part(groups[i], 1, rank, stage)));
          items.emplace_back("exp_avg_sq", archive.flat(part(groups[i], 2, rank, stage)));
        }
        states += number(static_cast<std::int32_t>(i)) + dict(items);
      }
      archive.save(folder / (of_rank + "_optim_states.pt"),
                   dict({{"optimizer_state_dict",
                          dict({{"zero_stage", number(stage)},
                                {"partition_count", number(kRanks)},
                                {"loss_scaler", told.scaler},
                                {stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups", list(fp32)},
                                {stage == 3 ? "optimizer_state_dict" : "base_optimizer_state",
                                 dict({{"state", states + "u"}})}})}}));
    }
    return folder;
  }
  Json imported_state(const Checkpoint& checkpoint, const Told& told) const {
    import(write(checkpoint, 2, told), "other");
    return Checkpoint(out("other") / "checkpoint-3").state();
  }
  /// Returns what it says on standard error.
  std::string import(const fs::path& source, const std::string& name) const {
    testing::internal::CaptureStderr();
    import_deepspeed_checkpoint(DeepSpeedCheckpoint(source), open_model(folder_.path() / "config.json"), out(name));
    return testing::internal::GetCapturedStderr();
  }

  static constexpr std::size_t kRanks = 3;
  TemporaryFolder folder_;
};

TEST_P(DeepSpeedImport, ARunGoesOnAsIfItHadNeverBeenElsewhere) {
  train_as("straight");
  const std::string said = import(write(Checkpoint(out("straight") / "checkpoint-3"), GetParam()), "moved");
  EXPECT_THAT(said, HasSubstr("3 updates in 3 steps are in " + (out("moved") / "checkpoint-3").string()));
  EXPECT_THAT(said, HasSubstr("not taken over: random streams (dropout begins anew) and the order of the rows"));
  const std::string resumed = train_as("moved");
  EXPECT_THAT(resumed, HasSubstr("12 are taken as used, in this run's order: its first 3 steps"));
  const std::string straight = trajectory(out("straight")), moved = trajectory(out("moved"));
  ASSERT_FALSE(moved.empty());
  EXPECT_EQ(std::count(moved.begin(), moved.end(), '\n'), 3);
  EXPECT_TRUE(straight.ends_with(moved)) << straight << "\n" << moved;
  EXPECT_TRUE(read_file(out("straight") / "model.safetensors") == read_file(out("moved") / "model.safetensors"));
}

INSTANTIATE_TEST_SUITE_P(Stages, DeepSpeedImport, testing::Values(1, 2, 3));

TEST_F(DeepSpeedImport, CountersAndLossScaleComeAlong) {
  train_as("straight", {{"max_steps", 3}});
  const Checkpoint checkpoint(out("straight") / "checkpoint-3");
  const std::string type = global("deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler");
  Told told{.skipped = 1, .updates = 2.0F};
  // 2^16, as pickle writes a float: the most significant byte first. Three steps went well behind the overflow in the
  // first.
  told.scaler = object(type, dict({{"cur_scale", std::string("G\x40\xf0\0\0\0\0\0\0", 9)},
                                   {"cur_iter", number(4)},
                                   {"last_overflow_iter", number(0)},
                                   {"cur_hysteresis", number(2)}}));
  Json state = imported_state(checkpoint, told);
  EXPECT_EQ(state["updates"], 2);
  EXPECT_EQ(state["step"], 3);
  EXPECT_EQ(state["loss_scaler"]["scale"], 65536);
  EXPECT_EQ(state["loss_scaler"]["steps_without_overflow"], 2);
  EXPECT_EQ(state["loss_scaler"]["hysteresis_left"], 2);
  told = {.updates = std::nullopt};
  state = imported_state(checkpoint, told);
  EXPECT_EQ(state["updates"], 3);  // the run's own
  EXPECT_FALSE(state.contains("loss_scaler"));
  const Json fp16 = {{"fp16", true}, {"max_steps", 4}, {"train_file", (folder_.path() / "rows.jsonl").string()}};
  EXPECT_THAT(train_as("other", fp16), HasSubstr("the checkpoint has no loss scale"));
}

TEST_F(DeepSpeedImport, WhatCannotGoOnIsRefusedWithTheReason) {
  train_as("straight", {{"max_steps", 3}});
  const Checkpoint checkpoint(out("straight") / "checkpoint-3");
  const auto expect_refusal = [&](const Told& told, const std::string& reason) {
    const fs::path source = write(checkpoint, 2, told);
    const ModelSource model = open_model(folder_.path() / "config.json");
    EXPECT_THAT([&] { import_deepspeed_checkpoint(DeepSpeedCheckpoint(source), model, out("refused")); },
                ThrowsMessage<Error>(HasSubstr(reason)));
    EXPECT_FALSE(fs::exists(out("refused")));
  };
  expect_refusal({.has_moments = false}, "its optimizer has no exp_avg");
  expect_refusal({.updates = 2.0F}, "its optimizer has made 2 updates, its run 3");
  expect_refusal({.updates = 2.5F}, "step is 2.5; expected a whole number");
  expect_refusal({.skipped = 4}, "skipped_steps is 4; global_steps is 3");
  expect_refusal({.frozen = "model.norm.weight"}, "model.norm.weight has no moments: it was frozen");
}

}  // namespace
}  // namespace heddle::endtoend
