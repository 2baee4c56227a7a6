#include "planner/length_table.h"

#include <gtest/gtest.h>

namespace heddle {
namespace {

constexpr const char* kConfig = R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
  "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 40, "max_position_embeddings": 1024})";

LengthTable table_of(const RunConfig& run) {
  return plan_by_length(run, parse_model_config(kConfig, "config.json"), {});
}

std::vector<std::string> columns_of(const LengthTable& table) {
  std::vector<std::string> names;
  for (const auto& column : table.columns) names.push_back(column.name);
  return names;
}

TEST(LengthTable, SeveralRanksHaveAColumnForEachStage) {
  RunConfig run;
  run.ranks = 2;
  const LengthTable table = table_of(run);
  EXPECT_EQ(columns_of(table), (std::vector<std::string>{"stage 0", "stage 1", "stage 2", "stage 3"}));
  EXPECT_EQ(table.lengths, (std::vector<std::int64_t>{512, 1024}));
}

TEST(LengthTable, HasNoMicroBatchOfMoreTokensThanThereMayBe) {
  RunConfig run;
  run.per_device_train_batch_size = std::int64_t{1} << 21;  // times 1024 is 2^31
  EXPECT_EQ(table_of(run).lengths, std::vector<std::int64_t>{512});
  run.per_device_train_batch_size = std::int64_t{1} << 53;
  EXPECT_EQ(length_text(table_of(run)), "");
}

TEST(LengthTable, OffloadedWeightsOfSeveralRanksHaveTheStageThatTheyNeed) {
  RunConfig run;
  run.ranks = 2;
  run.zero_stage = 3;
  run.offload_param = OffloadDevice::cpu;
  EXPECT_EQ(columns_of(table_of(run)), std::vector<std::string>{"stage 3"});
}

}  // namespace
}  // namespace heddle
