#include "train/run_setup.h"

#include <gmock/gmock.h>

#include <string>

#include "base/error.h"

namespace heddle {
namespace {

constexpr const char* kConfig = R"({"model_type": "llama", "hidden_size": 16, "intermediate_size": 32,
  "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 40, "max_position_embeddings": 1024})";

/// The plan's error; "" if there is a plan.
std::string refusal(std::int64_t rows, std::int64_t max_length) {
  ModelSource model;
  model.config = parse_model_config(kConfig, "config.json");
  RunConfig run;
  run.per_device_train_batch_size = rows;
  run.max_length = max_length;
  try {
    compile_run(run, model, nullptr, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RunSetup, TokensOfAMicroBatchAreCountedIn32Bits) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 31) - 1;  // 7 * 306783378 + 1
  EXPECT_EQ(refusal(7, kMost / 7), "");
  EXPECT_EQ(refusal(8, kMost / 7),
            "a micro-batch of 8 rows (per_device_train_batch_size) of max_length 306783378 has more than 2147483647 "
            "tokens");
  EXPECT_THAT(refusal(std::int64_t{1} << 20, std::int64_t{1} << 30), testing::HasSubstr("more than 2147483647"));
  EXPECT_THAT(refusal(std::int64_t{1} << 62, 1024), testing::HasSubstr("more than 2147483647"));
}

}  // namespace
}  // namespace heddle
