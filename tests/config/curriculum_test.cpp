// DeepSpeed's sequence-length curriculum: the lengths of its CurriculumScheduler, and what its JSON must hold.
#include "config/curriculum.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "config/run_config.h"
#include "formats/json.h"

namespace heddle {
namespace {

using testing::HasSubstr;

Json curriculum(const Json& schedule_config, const char* schedule = "fixed_linear") {
  return {{"enabled", true},      {"curriculum_type", "seqlen"}, {"min_difficulty", 8},
          {"max_difficulty", 64}, {"schedule_type", schedule},   {"schedule_config", schedule_config}};
}

RunConfig config_of(const Json& section) {
  return RunFile::parse(Json{{"deepspeed", {{"curriculum_learning", section}}}}.dump(), "run.json", {}).config();
}

std::string error_of(const Json& section) {
  try {
    config_of(section);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// {first step, positions} of each length in the first 400 steps.
using Lengths = std::vector<std::pair<std::int64_t, std::int64_t>>;
Lengths lengths_of(const Json& section) {
  const CurriculumConfig curriculum = config_of(section).curriculum;
  EXPECT_TRUE(curriculum.is_enabled);
  Lengths lengths;
  for (std::int64_t step = 1; step <= 400; ++step) {
    const std::int64_t length = curriculum.length_at(step);
    if (lengths.empty() || lengths.back().second != length) lengths.emplace_back(step, length);
  }
  EXPECT_EQ(lengths.back().second, curriculum.last_length());
  return lengths;
}

TEST(Curriculum, LengthsAreDeepSpeeds) {
  // Right values: what CurriculumScheduler.update_difficulty of DeepSpeed 0.19.8 gives for steps 1 to 400.
  EXPECT_EQ(lengths_of(curriculum({{"total_curriculum_step", 100}, {"difficulty_step", 8}})),
            (Lengths{{1, 8}, {15, 16}, {29, 24}, {43, 32}, {58, 40}, {72, 48}, {86, 56}, {100, 64}}));
  const Json root = {{"total_curriculum_step", 100}, {"difficulty_step", 8}, {"root_degree", 2}};
  EXPECT_EQ(lengths_of(curriculum(root, "fixed_root")),
            (Lengths{{1, 8}, {3, 16}, {9, 24}, {19, 32}, {33, 40}, {52, 48}, {74, 56}, {100, 64}}));
  EXPECT_EQ(lengths_of(curriculum({{"difficulty", {8, 24, 64}}, {"max_step", {5, 10}}}, "fixed_discrete")),
            (Lengths{{1, 8}, {6, 24}, {11, 64}}));
}

TEST(Curriculum, BoundsThatAreNoMultiplesAreMetAsByDeepSpeed) {
  Json odd = curriculum({{"total_curriculum_step", 50}, {"difficulty_step", 16}});
  odd.update({{"min_difficulty", 10}, {"max_difficulty", 100}});
  EXPECT_EQ(lengths_of(odd), (Lengths{{1, 16}, {13, 32}, {22, 48}, {30, 64}, {39, 80}, {48, 96}, {57, 100}}));
  Json below = curriculum({{"total_curriculum_step", 30}, {"difficulty_step", 16}, {"root_degree", 3}}, "fixed_root");
  below["max_difficulty"] = 40;
  EXPECT_EQ(lengths_of(below), (Lengths{{1, 16}, {13, 32}, {59, 40}}));
}

TEST(Curriculum, WhatItsScheduleLacksIsNamed) {
  EXPECT_FALSE(config_of({{"enabled", false}, {"min_difficulty", 8}}).curriculum.is_enabled);
  EXPECT_THAT(error_of(curriculum({{"difficulty_step", 8}})),
              HasSubstr("curriculum_learning.schedule_config.total_curriculum_step is missing"));
  EXPECT_THAT(error_of(curriculum({{"difficulty", {8, 64}}, {"max_step", {5, 10}}}, "fixed_discrete")),
              HasSubstr("expected one value more"));
  EXPECT_THAT(error_of(curriculum({{"difficulty", {64, 8}}, {"max_step", Json::array({5})}}, "fixed_discrete")),
              HasSubstr("expected values that grow"));
  Json pairs = {{"loss_type", "sigmoid"}, {"deepspeed", {{"curriculum_learning", {}}}}};
  pairs["deepspeed"]["curriculum_learning"] = curriculum({{"total_curriculum_step", 9}, {"difficulty_step", 8}});
  EXPECT_THAT([&] { RunFile::parse(pairs.dump(), "run.json", {}); },
              testing::ThrowsMessage<Error>(HasSubstr("curriculum_learning cuts rows")));
  Json other = curriculum({{"total_curriculum_step", 9}, {"difficulty_step", 8}});
  other["curriculum_type"] = "vocab_rarity";
  EXPECT_THAT(error_of(other), HasSubstr("curriculum_type"));
}

}  // namespace
}  // namespace heddle
