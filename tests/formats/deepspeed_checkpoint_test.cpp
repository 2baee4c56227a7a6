#include "formats/deepspeed_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>

#include "formats/safetensors.h"
#include "safetensors_files.h"
#include "torch_files.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using namespace torch_files;
using testing::AllOf;
using testing::HasSubstr;
using Floats = std::vector<float>;
using Shape = std::vector<std::int64_t>;

std::vector<std::byte> bytes_of(const DeepSpeedCheckpoint& checkpoint, std::size_t tensor, OptimizerPart part) {
  std::vector<std::byte> all;
  checkpoint.read(tensor, part, [&](std::span<const std::byte> b) { all.insert(all.end(), b.begin(), b.end()); });
  return all;
}

Floats floats_of(const DeepSpeedCheckpoint& checkpoint, const std::string& name,
                 OptimizerPart part = OptimizerPart::fp32) {
  for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
    if (checkpoint.tensors()[i].name != name) continue;
    EXPECT_EQ(checkpoint.tensors()[i].dtype, DType::f32) << name;
    const auto bytes = bytes_of(checkpoint, i, part);
    Floats values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

/// first, first + 1, ...
Floats counted(std::int64_t count, float first) {
  Floats values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), first);
  return values;
}

Floats part_of(const Floats& values, std::size_t begin, std::size_t end) {
  Floats part(end - begin, -1.0f);  // what lies beyond is padding
  for (std::size_t i = begin; i < std::min(end, values.size()); ++i) part[i - begin] = values[i];
  return part;
}

// DeepSpeed wrote the folders, and its get_fp32_state_dict_from_zero_checkpoint the expected weights.
class GoldenDeepSpeed : public testing::TestWithParam<int> {};

TEST_P(GoldenDeepSpeed, WeightsAreThoseThatDeepSpeedConsolidates) {
  const char* data = std::getenv("HEDDLE_DATA");
  const fs::path golden =
      fs::path(data != nullptr ? data : HEDDLE_SOURCE_DIR "/../shared/data") / "golden/deepspeed_ckpt";
  const std::string name = "stage" + std::to_string(GetParam()) + "_bf16";
  if (!fs::exists(golden / name)) GTEST_SKIP() << golden / name << " is absent";
  for (const fs::path& source : {golden / name, golden / name / "global_step3"}) {
    const DeepSpeedCheckpoint checkpoint(source);
    EXPECT_EQ(checkpoint.stage(), GetParam());
    EXPECT_EQ(checkpoint.ranks(), 2U);
    checkpoint.verify(OptimizerPart::fp32);
    const DeepSpeedProgress progress = checkpoint.progress();  // its README: three steps of two rows on each rank
    EXPECT_EQ(progress.steps, 3);
    EXPECT_EQ(progress.skipped, 0);
    EXPECT_EQ(progress.samples, 12);
    EXPECT_EQ(progress.updates, 3);
    EXPECT_FALSE(progress.loss_scale);
    const SafetensorsFile expected(golden / (name + ".expected_fp32.safetensors"));
    ASSERT_EQ(checkpoint.tensors().size(), expected.tensors().size());
    for (std::size_t i = 0; i < checkpoint.tensors().size(); ++i) {
      const auto& tensor = checkpoint.tensors()[i];
      const StoredTensor* stored = expected.find(tensor.name);
      ASSERT_NE(stored, nullptr) << tensor.name;
      EXPECT_EQ(tensor.dtype, stored->dtype) << tensor.name;
      EXPECT_EQ(tensor.shape, stored->shape) << tensor.name;
      std::vector<std::byte> wanted(stored->bytes());
      expected.read(*stored, 0, wanted);
      EXPECT_EQ(bytes_of(checkpoint, i, OptimizerPart::fp32), wanted) << tensor.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Stages, GoldenDeepSpeed, testing::Values(1, 2, 3));

/// Checkpoints of a model of two parameter groups, {"a" [2, 3], "b" [5]} and {"c" [3]}, all parameters counted upwards
/// from 100, 200 and 300, exp_avg from 1100 ... and exp_avg_sq from 2100 ...; beside them "frozen" [2, 2] in bf16, the
/// buffers "mask" (bool) and "scale" (fp16), and "tied", another name of "a".
class WrittenDeepSpeed : public FolderTest {
 protected:
  struct Written {
    std::string name;
    Shape shape;
    float first;
  };
  const std::vector<std::vector<Written>> groups_ = {{{"a", {2, 3}, 100}, {"b", {5}, 200}}, {{"c", {3}, 300}}};

  static std::int64_t elements(const Written& parameter) {
    return std::accumulate(parameter.shape.begin(), parameter.shape.end(), std::int64_t{1}, std::multiplies<>());
  }

  fs::path states() const { return folder / "global_step7"; }
  fs::path model_file(int rank = 0) const {
    const std::string of_rank = stage == 3 ? "zero_pp_rank_" + std::to_string(rank) + "_" : "";
    return states() / (of_rank + "mp_rank_00_model_states.pt");
  }
  fs::path optimizer_file(int rank) const {
    return states() / ("bf16_zero_pp_rank_" + std::to_string(rank) + "_mp_rank_00_optim_states.pt");
  }

  std::string frozen_fragment(TorchArchive& archive, int rank) const {
    std::vector<std::uint16_t> bits = {0x3f80, 0x4000, 0x4040, 0x4080};  // 1, 2, 3, 4
    if (stage < 3) return archive.tensor(bits, {2, 2}, "BFloat16Storage");
    const auto each = static_cast<std::size_t>((4 + ranks - 1) / ranks);
    bits.resize(each * static_cast<std::size_t>(ranks), 0xffff);
    const auto begin = bits.begin() + static_cast<std::ptrdiff_t>(each) * rank;
    return archive.tensor(std::vector(begin, begin + static_cast<std::ptrdiff_t>(each)),
                          {static_cast<std::int64_t>(each)}, "BFloat16Storage");
  }

  void write_model(int rank) const {
    TorchArchive archive;
    std::vector<std::string> shapes;
    for (const auto& group : groups_) {
      Items items;
      for (const auto& parameter : group) items.emplace_back(parameter.name, size(parameter.shape));
      shapes.push_back(dict(items));
    }
    const std::string mask = archive.tensor(std::vector<std::uint8_t>{1, 0, 1}, {3}, "BoolStorage");
    const std::string scale = archive.tensor(std::vector<std::uint16_t>{0x3c00, 0x4200}, {2}, "HalfStorage");  // 1, 3
    archive.save(model_file(rank), dict({{"module", dict({{"mask", mask}, {"scale", scale}, {"a", none()}})},
                                         {"buffer_names", list({text("mask"), text("scale"), text("not_saved")})},
                                         {"global_steps", number(4)},
                                         {"global_samples", number(40)},
                                         {"param_shapes", list(shapes)},
                                         {"frozen_param_shapes", dict({{"frozen", size({2, 2})}})},
                                         {"frozen_param_fragments", dict({{"frozen", frozen_fragment(archive, rank)}})},
                                         {"shared_params", dict({{"tied", text("a")}, {"nothing", text("gone")}})}}));
  }

  /// What a rank holds of a group: stages 1 and 2 an even part of the parameters end to end, each with its padding;
  /// stage 3 an even part of each.
  Floats part(const std::vector<Written>& group, int rank, float beyond) const {
    Floats flat, mine;
    const auto count = static_cast<std::size_t>(ranks), at = static_cast<std::size_t>(rank);
    for (const auto& parameter : group) {
      const Floats values = counted(elements(parameter), parameter.first + beyond);
      const std::size_t each = (values.size() + count - 1) / count;
      const Floats cut = part_of(values, at * each, (at + 1) * each);
      mine.insert(mine.end(), cut.begin(), cut.end());
      flat.insert(flat.end(), values.begin(), values.end());
      flat.resize(flat.size() + static_cast<std::size_t>(padding), -2.0f);
    }
    if (stage == 3) return mine;
    const std::size_t each = (flat.size() + 2 * count - 1) / (2 * count) * 2;
    return part_of(flat, at * each, (at + 1) * each);
  }

  void write_optimizer(int rank) const {
    TorchArchive archive;
    std::vector<std::string> fp32, paddings;
    Items moments;
    std::string state = "}(";
    for (std::size_t group = 0; group < groups_.size(); ++group) {
      fp32.push_back(archive.flat(part(groups_[group], rank, 0)));
      state += number(static_cast<std::int32_t>(group)) +
               dict({{"step", archive.tensor(Floats{updates}, {}, "FloatStorage")},
                     {"exp_avg", archive.flat(part(groups_[group], rank, 1000))},
                     {"exp_avg_sq", archive.flat(part(groups_[group], rank, 2000))}});
      paddings.push_back(list(std::vector(groups_[group].size(), number(padding))));
    }
    const std::string stage_enum =
        call(global("deepspeed.runtime.zero.config", "ZeroStageEnum"), tuple({number(stage)}));
    const std::string scaler = object(global("deepspeed.runtime.fp16.loss_scaler", "LossScaler"),
                                      dict({{"cur_scale", number(1)}, {"dynamic", none()}}));
    Items items = {{"zero_stage", stage_enum},
                   {"loss_scaler", scaler},
                   {"partition_count", stage == 3 ? number(partition_count) : list({number(partition_count)})},
                   {stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups", list(fp32)},
                   {stage == 3 ? "optimizer_state_dict" : "base_optimizer_state", dict({{"state", state + "u"}})}};
    if (padding > 0) items.emplace_back("param_alignment_paddings", list(paddings));
    archive.save(optimizer_file(rank), dict({{"optimizer_state_dict", dict(items)}}));
  }

  void write_all() {
    partition_count = ranks;
    for (int rank = 0; rank < ranks; ++rank) {
      if (rank == 0 || stage == 3) write_model(rank);
      write_optimizer(rank);
    }
    write("latest", "global_step7\n");
  }

  /// What is wrong with the checkpoint.
  std::string error() const {
    return error_of([&] {
      const DeepSpeedCheckpoint checkpoint(folder);
      checkpoint.verify(OptimizerPart::fp32);
    });
  }

  void expect_the_model(const DeepSpeedCheckpoint& checkpoint) const {
    std::vector<std::string> names;
    for (const auto& tensor : checkpoint.tensors()) names.push_back(tensor.name);
    EXPECT_THAT(names, testing::ElementsAre("mask", "scale", "frozen", "a", "b", "c", "tied"));
    EXPECT_EQ(checkpoint.tensors()[0].dtype, DType::boolean);
    EXPECT_THAT(bytes_of(checkpoint, 0, OptimizerPart::fp32),
                testing::ElementsAre(std::byte{1}, std::byte{0}, std::byte{1}));
    EXPECT_EQ(floats_of(checkpoint, "scale"), (Floats{1, 3}));
    EXPECT_EQ(floats_of(checkpoint, "frozen"), (Floats{1, 2, 3, 4}));
    EXPECT_EQ(floats_of(checkpoint, "tied"), counted(6, 100));
    for (const auto& group : groups_) {
      for (const auto& [name, shape, first] : group) {
        const auto count = elements({name, shape, first});
        EXPECT_EQ(floats_of(checkpoint, name), counted(count, first)) << name;
        EXPECT_EQ(floats_of(checkpoint, name, OptimizerPart::exp_avg), counted(count, first + 1000)) << name;
        EXPECT_EQ(floats_of(checkpoint, name, OptimizerPart::exp_avg_sq), counted(count, first + 2000)) << name;
      }
    }
  }

  int stage = 1, ranks = 2, padding = 0, partition_count = 2;
  float updates = 3;
};

TEST_F(WrittenDeepSpeed, RanksOfStages1And2HoldEvenPartsOfAGroup) {
  for (stage = 1; stage <= 2; ++stage) {
    for (const int count : {1, 2, 3, 4, 7}) {
      for (padding = 0; padding < 3; ++padding) {
        ranks = count;
        fs::remove_all(states());
        write_all();
        expect_the_model(DeepSpeedCheckpoint(folder));
        if (HasFailure()) FAIL() << "stage " << stage << ", ranks " << ranks << ", padding " << padding;
      }
    }
  }
}

TEST_F(WrittenDeepSpeed, RanksOfStage3HoldEvenPartsOfAParameter) {
  stage = 3;
  for (const int count : {1, 2, 3, 4, 7}) {
    ranks = count;
    fs::remove_all(states());
    write_all();
    expect_the_model(DeepSpeedCheckpoint(folder));
    if (HasFailure()) FAIL() << "ranks " << ranks;
  }
}

TEST_F(WrittenDeepSpeed, UniversalCheckpointsHoldAFileOfEachParameter) {
  for (const int of_stage : {2, 3}) {
    stage = of_stage;
    write_all();
    for (int rank = 0; rank < ranks; ++rank) fs::remove(optimizer_file(rank));
    for (const auto& group : groups_) {
      for (const auto& parameter : group) {
        for (const auto& [part, beyond] :
             {std::pair{"fp32.pt", 0.0f}, {"exp_avg.pt", 1000.0f}, {"exp_avg_sq.pt", 2000.0f}}) {
          TorchArchive archive;
          const Floats values = counted(elements(parameter), parameter.first + beyond);
          // ds_to_universal.py: in a dictionary with their shapes, of stage 3 flat and alone.
          const std::string value = stage == 3
                                        ? archive.flat(values)
                                        : dict({{"param", archive.tensor(values, parameter.shape, "FloatStorage")}});
          archive.save(states() / "zero" / parameter.name / part, value);
        }
      }
    }
    fs::remove(folder / "latest");
    write("latest_universal", "global_step7");
    const DeepSpeedCheckpoint checkpoint(folder);
    EXPECT_EQ(checkpoint.stage(), 0);
    EXPECT_EQ(checkpoint.progress().updates, std::nullopt);
    TorchArchive().save(states() / "zero/b/step.pt", number(4));  // of PyTorch's AdamW; DeepSpeed's has it elsewhere
    EXPECT_EQ(checkpoint.progress().updates, 4);
    TorchArchive().save(states() / "zero/optimizer_state.pt",
                        dict({{"param_groups", list({dict({{"step", number(5)}})})}}));
    EXPECT_EQ(checkpoint.progress().updates, 5);
    checkpoint.verify(OptimizerPart::fp32);
    expect_the_model(checkpoint);
    fs::resize_file(states() / "zero/b/fp32.pt", 100);
    EXPECT_THAT(error(), AllOf(HasSubstr("zero/b/fp32.pt"), HasSubstr("cut")));
    fs::remove(states() / "zero/b/fp32.pt");
    EXPECT_THAT(error(), HasSubstr("zero/b/fp32.pt"));
    fs::remove_all(states());
  }
}

TEST_F(WrittenDeepSpeed, AMissingRankIsNamed) {
  for (stage = 1; stage <= 3; ++stage) {
    ranks = 3;
    write_all();
    fs::remove(optimizer_file(1));
    EXPECT_THAT(error(), AllOf(HasSubstr("global_step7"), HasSubstr("zero_pp_rank_1_")));
    write_all();
    fs::remove(optimizer_file(2));
    EXPECT_THAT(error(), AllOf(HasSubstr("rank_0_mp_rank_00_optim_states.pt: its run had 3 ranks"), HasSubstr("of 2")));
    write_all();
    fs::remove(model_file(0));
    EXPECT_THAT(error(), AllOf(HasSubstr("global_step7"), HasSubstr("model")));
    fs::remove_all(states());
  }
}

TEST_F(WrittenDeepSpeed, AFileOfAnotherNumberOfRanksIsNamed) {
  write_all();
  partition_count = 3;
  write_optimizer(1);
  EXPECT_THAT(error(), AllOf(HasSubstr("rank_1_mp_rank_00_optim_states.pt: partition_count is 3"), HasSubstr("is 2")));
}

TEST_F(WrittenDeepSpeed, AFileOfAnotherStageIsNamed) {
  write_all();
  stage = 2;
  write_optimizer(1);
  EXPECT_THAT(error(), AllOf(HasSubstr("rank_1_mp_rank_00_optim_states.pt: zero_stage is 2"), HasSubstr("is 1")));
  stage = 3;
  write_model(0);
  EXPECT_THAT(error(), AllOf(HasSubstr("mp_rank_00_model_states.pt"), HasSubstr("belongs to another run")));
  fs::remove(states() / "mp_rank_00_model_states.pt");
  write_optimizer(1);
  EXPECT_THAT(error(), AllOf(HasSubstr("rank_1_mp_rank_00_optim_states.pt: zero_stage is 3"), HasSubstr("is 1")));
}

TEST_F(WrittenDeepSpeed, RanksThatDisagreeOnShapesAreNamed) {
  stage = 3;
  write_all();
  TorchArchive archive;
  archive.save(
      model_file(1),
      dict({{"buffer_names", list({})},
            {"param_shapes", list({dict({{"a", size({3, 2})}, {"b", size({5})}}), dict({{"c", size({3})}})})}}));
  EXPECT_THAT(error(),
              AllOf(HasSubstr("rank_1_mp_rank_00_model_states.pt"), HasSubstr("a [3, 2]"), HasSubstr("[2, 3]")));
}

TEST_F(WrittenDeepSpeed, GroupsOfAnotherSizeThanTheModelAreNamed) {
  for (stage = 1; stage <= 3; ++stage) {
    write_all();
    for (int rank = 0; rank < ranks; ++rank) {
      TorchArchive archive;
      const Floats few = counted(4, 0), many = counted(40, 0);
      archive.save(
          optimizer_file(rank),
          dict({{"optimizer_state_dict", dict({{"zero_stage", number(stage)},
                                               {"partition_count", number(2)},
                                               {stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups",
                                                list({archive.flat(few), archive.flat(many)})}})}}));
    }
    EXPECT_THAT(error(), AllOf(HasSubstr("global_step7"), HasSubstr("take")));
    fs::remove_all(states());
  }
}

TEST_F(WrittenDeepSpeed, CutAndEmptiedFilesAreNamed) {
  stage = 3;
  for (const fs::path& file : {optimizer_file(1), model_file(1)}) {
    write_all();
    fs::resize_file(file, fs::file_size(file) / 2);
    EXPECT_THAT(error(), AllOf(HasSubstr(file.filename().string()), HasSubstr("cut")));
    fs::resize_file(file, 0);
    EXPECT_THAT(error(), HasSubstr(file.filename().string()));
  }
}

TEST_F(WrittenDeepSpeed, AFlippedBitOfAWeightIsFound) {
  write_all();
  const fs::path file = optimizer_file(1);
  std::string content(fs::file_size(file), '\0');
  std::ifstream(file, std::ios::binary).read(content.data(), static_cast<std::streamsize>(content.size()));
  const Floats held = part(groups_[0], 1, 0);
  const std::size_t at = content.find(std::string(reinterpret_cast<const char*>(held.data()), 8));
  ASSERT_NE(at, std::string::npos);
  content[at] = static_cast<char>(content[at] ^ 4);
  std::ofstream(file, std::ios::binary) << content;
  EXPECT_THAT(error(), AllOf(HasSubstr("rank_1_mp_rank_00_optim_states.pt"), HasSubstr("CRC-32")));
}

TEST_F(WrittenDeepSpeed, ModelParallelAndStrangeFilesAreRefused) {
  write_all();
  const fs::path parallel = states() / "mp_rank_01_model_states.pt";
  fs::copy(model_file(), parallel);
  EXPECT_THAT(error(), AllOf(HasSubstr("mp_rank_01_model_states.pt"), HasSubstr("parallel")));
  fs::rename(parallel, states() / "layer_03_expert_0_mp_rank_00_model_states.pt");
  EXPECT_THAT(error(), AllOf(HasSubstr("layer_03_expert_0"), HasSubstr("experts")));
  fs::remove(states() / "layer_03_expert_0_mp_rank_00_model_states.pt");
  fs::copy(optimizer_file(1), states() / "zero_pp_rank_1_mp_rank_00_optim_states.pt");
  EXPECT_THAT(error(), HasSubstr("of the same rank"));
}

TEST_F(WrittenDeepSpeed, LatestMayOnlyNameAFolderBesideIt) {
  write_all();
  for (const char* tag : {"", "..", "/etc", "../other", "global_step8"}) {
    write("latest", tag);
    EXPECT_THAT(error(), HasSubstr("latest: ")) << tag;
  }
}

TEST_F(WrittenDeepSpeed, ClassesThatNoCheckpointNeedsAreRefused) {
  write_all();
  TorchArchive archive;
  for (const auto& [module, name] : {std::pair{"os", "system"}, {"deepspeed.runtime.engine", "DeepSpeedEngine"}}) {
    archive.save(model_file(), dict({{"client", call(global(module, name), tuple({text("touch x")}))}}));
    EXPECT_THAT(error(), AllOf(HasSubstr("mp_rank_00_model_states.pt"), HasSubstr(std::string(module) + " " + name)));
  }
}

TEST_F(WrittenDeepSpeed, AnyRangeOfATensorIsRead) {
  for (stage = 2; stage <= 3; ++stage) {
    write_all();
    const DeepSpeedCheckpoint checkpoint(folder);
    for (std::size_t tensor = 3; tensor < 6; ++tensor) {  // a, b, c
      const Floats whole = floats_of(checkpoint, checkpoint.tensors()[tensor].name, OptimizerPart::exp_avg);
      for (std::size_t begin = 0; begin < whole.size(); ++begin) {
        for (std::size_t end = begin; end <= whole.size(); ++end) {
          Floats part(end - begin);
          checkpoint.read(tensor, OptimizerPart::exp_avg, static_cast<std::int64_t>(begin),
                          std::as_writable_bytes(std::span(part)));
          EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + static_cast<std::ptrdiff_t>(begin)));
        }
      }
    }
    fs::remove_all(states());
  }
}

TEST_F(WrittenDeepSpeed, RanksThatHaveMadeOtherNumbersOfStepsAreNamed) {
  write_all();
  updates = 4;
  write_optimizer(1);
  EXPECT_THAT(
      error_of([&] { DeepSpeedCheckpoint(folder).progress(); }),
      AllOf(HasSubstr("rank_1_mp_rank_00_optim_states.pt"), HasSubstr("has made 4 steps"), HasSubstr("rank 3")));
}

TEST_F(WrittenDeepSpeed, MomentsOfAnotherOptimizerAreMissed) {
  write_all();
  for (int rank = 0; rank < ranks; ++rank) {
    TorchArchive archive;
    archive.save(
        optimizer_file(rank),
        dict({{"optimizer_state_dict",
               dict({{"zero_stage", number(1)},
                     {"partition_count", number(2)},
                     {"single_partition_of_fp32_groups",
                      list({archive.flat(part(groups_[0], rank, 0)), archive.flat(part(groups_[1], rank, 0))})}})}}));
  }
  const DeepSpeedCheckpoint checkpoint(folder);
  EXPECT_EQ(floats_of(checkpoint, "b"), counted(5, 200));
  EXPECT_THAT(error_of([&] { floats_of(checkpoint, "b", OptimizerPart::exp_avg); }),
              HasSubstr("holds no exp_avg of b"));
}

}  // namespace
}  // namespace heddle
