// Sequence-length warm-up: a step on cut rows is the step on rows that are that short.
#include <gtest/gtest.h>

#include "monitor/metrics.h"
#include "small_run.h"
#include "train/trainer.h"

namespace heddle::endtoend {
namespace {

Json curriculum(std::int64_t first, std::int64_t second) {
  return {{"curriculum_learning",
           {{"enabled", true},
            {"curriculum_type", "seqlen"},
            {"min_difficulty", first},
            {"max_difficulty", 40},
            {"schedule_type", "fixed_discrete"},
            {"schedule_config", {{"difficulty", {first, second, 40}}, {"max_step", {2, 4}}}}}}};
}

/// Rows of at most `positions` + 1 ids, so that each takes at most that many positions.
void cut_rows(const std::filesystem::path& from, const std::filesystem::path& to, std::size_t positions) {
  std::ifstream in(from);
  std::ofstream out(to);
  std::string line;
  while (std::getline(in, line)) {
    Json row = parse_json(line, "rows.jsonl");
    auto& ids = row["input_ids"];
    while (ids.size() > positions + 1) ids.erase(ids.size() - 1);
    out << row.dump() << "\n";
  }
}

std::vector<StepMetrics> steps_of(const std::filesystem::path& folder) {
  return read_metrics(folder / "metrics.jsonl").steps;
}

TEST(Curriculum, AStepIsThatOfRowsOfItsLength) {
  const TemporaryFolder folder;
  Json run = small_run(folder.path(), llama_config(), "grown");
  run.update({{"learning_rate", 0.0}, {"deepspeed", curriculum(7, 14)}});  // the weights stay, so that steps compare
  EXPECT_EQ(train(run_file(run)), 0);
  const auto grown = steps_of(folder.path() / "grown");
  EXPECT_EQ(read_file(folder.path() / "grown" / "plan.json"), read_file(folder.path() / "grown" / "memory.json"));
  Json whole = small_run(folder.path(), llama_config(), "whole");
  whole["learning_rate"] = 0.0;
  EXPECT_EQ(train(run_file(whole)), 0);
  EXPECT_EQ(read_file(folder.path() / "grown" / "plan.json"), read_file(folder.path() / "whole" / "plan.json"));
  const auto uncut = steps_of(folder.path() / "whole");
  for (const auto& [positions, first] : {std::pair<std::size_t, std::size_t>{7, 0}, {14, 2}}) {
    cut_rows(folder.path() / "rows.jsonl", folder.path() / "short.jsonl", positions);
    Json cut = small_run(folder.path(), llama_config(), "cut");
    cut.update({{"learning_rate", 0.0},
                {"train_file", (folder.path() / "short.jsonl").string()},
                {"resume_from_checkpoint", "false"}});
    EXPECT_EQ(train(run_file(cut)), 0);
    const auto expected = steps_of(folder.path() / "cut");
    for (std::size_t i = first; i < first + 2; ++i) {
      EXPECT_EQ(grown[i].loss, expected[i].loss) << i;
      EXPECT_EQ(grown[i].grad_norm, expected[i].grad_norm) << i;
      EXPECT_EQ(grown[i].num_supervised_tokens, expected[i].num_supervised_tokens) << i;
    }
  }
  for (std::size_t i = 4; i < 6; ++i) EXPECT_EQ(grown[i].loss, uncut[i].loss) << i;
  EXPECT_LT(grown[0].num_tokens, uncut[0].num_tokens);
}

TEST(Curriculum, NoBitDependsOnRanksOrAResume) {
  const TemporaryFolder folder;
  Json run = small_run(folder.path(), llama_config(), "whole");
  run.update({{"save_steps", 3}, {"deepspeed", curriculum(7, 14)}});
  EXPECT_EQ(train(run_file(run)), 0);
  run.update({{"output_dir", (folder.path() / "rest").string()},
              {"resume_from_checkpoint", (folder.path() / "whole" / "checkpoint-3").string()}});
  EXPECT_EQ(train(run_file(run)), 0);
  const std::string whole = trajectory(folder.path() / "whole"), rest = trajectory(folder.path() / "rest");
  EXPECT_TRUE(whole.ends_with(rest) && !rest.empty());
  run.update({{"output_dir", (folder.path() / "ranks").string()},
              {"resume_from_checkpoint", "false"},
              {"ranks", 2},
              {"zero_stage", 3},
              {"gradient_accumulation_steps", 1}});
  EXPECT_EQ(train(run_file(run)), 0);
  EXPECT_EQ(trajectory(folder.path() / "ranks"), whole);
}

}  // namespace
}  // namespace heddle::endtoend
