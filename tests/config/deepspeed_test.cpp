// DeepSpeed's JSON against values that follow from DeepSpeed's documentation and Hugging Face's of "auto"
// (golden/deepspeed_config/cases.json), and against files that people published.
#include "config/deepspeed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "base/error.h"
#include "config/deepspeed_keys.h"
#include "config/run_resolver.h"
#include "config/schedule_names.h"
#include "formats/files.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;

fs::path reference_data() {
  const char* path = std::getenv("HEDDLE_DATA");
  return path != nullptr ? fs::path(path) : fs::path(HEDDLE_SOURCE_DIR) / "../shared/data";
}

/// A folder of its own, gone at the end, with a model of hidden size 64.
class DeepSpeed : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("heddle-deepspeed-" + std::to_string(::getpid()));
    fs::create_directories(folder_ / "model");
    write("model/config.json", R"({"model_type": "llama", "hidden_size": 64})");
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return (folder_ / name).string();
  }

  /// Resolves a run with this DeepSpeed JSON, given inline or as the text of ds.json.
  ResolvedRun resolve(Json run, const Json& inline_object) {
    run["model_name_or_path"] = (folder_ / "model").string();
    run["deepspeed"] = inline_object;
    return resolve_run(parse_source(run.dump(1), "run.json", false), "run.json", {});
  }
  ResolvedRun resolve_text(const Json& run, const std::string& text) { return resolve(run, write("ds.json", text)); }

  std::string error_of(const Json& run, const Json& deepspeed) {
    try {
      resolve(run, deepspeed);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  fs::path folder_;
};

/// As the acceptance suite compares: numbers to 1e-12, integers above 1 as integers, else exactly.
bool is_same_value(const Json& got, const Json& want) {
  if (want.is_array()) {
    if (!got.is_array() || got.size() != want.size()) return false;
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (!is_same_value(got[i], want[i])) return false;
    }
    return true;
  }
  if (!want.is_number()) return got == want;
  if (!got.is_number()) return false;
  if (want.is_number_integer() && want.get<std::int64_t>() > 1 && !got.is_number_integer()) return false;
  return std::abs(got.get<double>() - want.get<double>()) <= 1e-12 * std::abs(want.get<double>());
}

TEST_F(DeepSpeed, EveryReferenceCaseResolvesToItsValues) {
  const auto file = reference_data() / "golden/deepspeed_config/cases.json";
  if (!fs::exists(file)) GTEST_SKIP() << file << " is absent";
  std::size_t compared = 0;
  const auto cases = read_json_file(file);
  for (const auto& [name, test] : cases.items()) {
    if (!test.contains("effective")) continue;
    for (const bool is_inline : {true, false}) {
      SCOPED_TRACE(name);
      try {
        const auto run =
            is_inline ? resolve(test["run"], test["deepspeed"]) : resolve_text(test["run"], test["deepspeed"].dump(2));
        for (const auto& [key, want] : test["effective"].items()) {
          const auto found = run.settings.all().find(key);
          ASSERT_NE(found, run.settings.all().end()) << key;
          EXPECT_TRUE(is_same_value(found->second.value, want)) << key << " is " << found->second.value;
          EXPECT_FALSE(found->second.origin.empty());
          ++compared;
        }
      } catch (const Error& e) {
        ADD_FAILURE() << e.what();
      }
    }
  }
  EXPECT_GT(compared, 100u);
}

TEST_F(DeepSpeed, EveryReferenceContradictionIsRefusedByName) {
  const auto file = reference_data() / "golden/deepspeed_config/cases.json";
  if (!fs::exists(file)) GTEST_SKIP() << file << " is absent";
  std::size_t refused = 0;
  const auto cases = read_json_file(file);
  for (const auto& [name, test] : cases.items()) {
    if (!test.contains("refused")) continue;
    SCOPED_TRACE(name);
    try {
      test.contains("text") ? resolve_text(test["run"], test["text"].get<std::string>())
                            : resolve(test["run"], test["deepspeed"]);
      ADD_FAILURE() << "accepted";
    } catch (const Error& e) {
      const std::string text = e.what();
      EXPECT_THAT(text, testing::Not(testing::HasSubstr("\n")));
      for (const auto& pattern : test["refused"]) {
        const std::regex expression(pattern.get<std::string>(), std::regex::icase);
        EXPECT_TRUE(std::regex_search(text, expression)) << text << "\n  has no " << pattern;
      }
      ++refused;
    }
  }
  EXPECT_GT(refused, 30u);
}

TEST_F(DeepSpeed, PublishedFilesAreReadOrRefusedByKey) {
  const auto folder = reference_data() / "ds_configs";
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is absent";
  // Those of the libraries that people fine-tune with.
  const std::vector<std::string> common = {"accelerate__ds_config_zero2",
                                           "axolotl__zero2",
                                           "axolotl__zero3",
                                           "fastchat__deepspeed_config_s2",
                                           "llama-factory__ds_z0_config",
                                           "llama-factory__ds_z2_offload_config",
                                           "llama-factory__ds_z3_config",
                                           "transformers__ds_config_zero2"};
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    ++files;
    const auto name = entry.path().stem().string();
    SCOPED_TRACE(name);
    const bool is_common = std::find(common.begin(), common.end(), name) != common.end();
    std::string text = read_text_file(entry.path(), 1 << 20);
    const bool is_fp16 = std::regex_search(text, std::regex(R"("fp16"\s*:\s*\{\s*"enabled"\s*:\s*true)"));
    Json run = {{"max_steps", 100}, {"warmup_steps", 10}, {"bf16", !is_fp16}, {"fp16", is_fp16}};
    try {
      const auto resolved = resolve_text(run, text);
      for (const auto& [key, setting] : resolved.settings.all()) {
        if (key.starts_with("deepspeed")) {
          EXPECT_NE(setting.value, "auto") << key;
        }
      }
    } catch (const Error& e) {
      EXPECT_FALSE(is_common) << e.what();
    }
  }
  EXPECT_GE(files, 8u);
}

bool is_schedule_argument(const std::string& path) {
  constexpr std::string_view prefix = "scheduler.params.";
  if (!path.starts_with(prefix)) return false;
  for (const auto& type : schedule_types()) {
    for (const auto& argument : type.arguments) {
      if (type.is_deepspeed && argument.name == path.substr(prefix.size())) return true;
    }
  }
  return false;
}

TEST_F(DeepSpeed, EveryKeyOfPublishedFilesIsInTheTable) {
  const auto file = reference_data() / "ds_configs/KEYS.tsv";
  if (!fs::exists(file)) GTEST_SKIP() << file << " is absent";
  std::istringstream lines(read_text_file(file));
  std::string line;
  std::getline(lines, line);
  std::size_t known = 0;
  while (std::getline(lines, line)) {
    const auto first = line.find('\t'), second = line.find('\t', first + 1);
    const auto path = line.substr(first + 1, second - first - 1);
    bool is_known = path.starts_with('_') || is_schedule_argument(path);
    for (const auto& rename : deepspeed_renames()) is_known = is_known || rename.old_path == path;
    for (auto end = path.size(); end != std::string::npos && end > 0; end = path.rfind('.', end - 1)) {
      const auto* key = find_deepspeed_key(path.substr(0, end));
      is_known = is_known || (key != nullptr && (end == path.size() || key->is_free_form));
    }
    known += is_known ? 1 : 0;
    EXPECT_TRUE(is_known) << path;
  }
  EXPECT_EQ(known, 278u);  // the lines of the list
}

TEST_F(DeepSpeed, ValuesKeepTheirLineAndReachTheConfig) {
  const auto run = resolve_text({{"fp16", true}}, R"({
    "train_micro_batch_size_per_gpu": 2,
    "fp16": {"enabled": true, "initial_scale_power": 24, "hysteresis": 1},
    "optimizer": {"type": "AdamW",
                  "params": {"lr": 3e-3, "betas": [0.8, 0.9]}}
  })");
  EXPECT_EQ(run.config.per_device_train_batch_size, 2);
  EXPECT_EQ(run.config.precision, Precision::fp16);
  EXPECT_EQ(run.config.loss_scaling.initial_scale_power, 24);
  EXPECT_EQ(run.config.loss_scaling.hysteresis, 1);
  EXPECT_EQ(run.config.learning_rate, 3e-3);
  EXPECT_EQ(run.config.adam_beta1, 0.8);
  EXPECT_EQ(run.config.adam_beta2, 0.9);
  EXPECT_THAT(run.settings.at("learning_rate").origin, testing::EndsWith("ds.json:5: optimizer.params.lr)"));
  EXPECT_THAT(run.settings.at("learning_rate").origin, testing::StartsWith("deepspeed ("));
  EXPECT_THAT(run.settings.at("deepspeed.optimizer.params.lr").origin, testing::EndsWith("ds.json:5)"));
  EXPECT_THAT(run.settings.at("per_device_train_batch_size").origin,
              testing::EndsWith("ds.json:2: train_micro_batch_size_per_gpu)"));
}

TEST_F(DeepSpeed, OriginsNameTheKeyAndItsOwnOrigin) {
  const auto run = resolve({{"learning_rate", 1e-4}}, {{"optimizer", {{"type", "Adam"}, {"params", {{"lr", "auto"}}}}},
                                                       {"gradient_accumulation_steps", "auto"}});
  // "run.json:2" is the line of learning_rate.
  EXPECT_EQ(run.settings.at("deepspeed.optimizer.params.lr").origin, "Trainer's rule (learning_rate: run.json:2)");
  EXPECT_EQ(run.settings.at("deepspeed.gradient_accumulation_steps").origin,
            "Trainer's rule (gradient_accumulation_steps: default)");
  EXPECT_EQ(run.settings.at("gradient_accumulation_steps").origin, "default");
  EXPECT_EQ(run.settings.at("deepspeed").value.at("optimizer").at("type"), "Adam");
}

TEST_F(DeepSpeed, AContradictionNamesWhereEachValueCameFrom) {
  const auto error =
      error_of({{"per_device_train_batch_size", 2}, {"gradient_accumulation_steps", 1}}, {{"train_batch_size", 8}});
  EXPECT_THAT(error, testing::AllOf(testing::StartsWith("run.json:"), testing::HasSubstr("train_batch_size is 8"),
                                    testing::HasSubstr("train_micro_batch_size_per_gpu 2 (run.json:2)"),
                                    testing::HasSubstr("gradient_accumulation_steps 1 (run.json:3)")));
}

TEST_F(DeepSpeed, WhatIsAutoSeesWhatTheScheduleSays) {
  const Json deepspeed = {{"optimizer", {{"type", "AdamW"}, {"params", {{"lr", "auto"}}}}},
                          {"scheduler", {{"type", "WarmupLR"}, {"params", {{"warmup_max_lr", 2e-3}}}}}};
  EXPECT_EQ(resolve({}, deepspeed).settings.at("deepspeed.optimizer.params.lr").value, 2e-3);
}

TEST_F(DeepSpeed, ScheduleReachesTheConfig) {
  const Json deepspeed = {
      {"scheduler", {{"type", "OneCycle"}, {"params", {{"cycle_min_lr", 1e-4}, {"cycle_max_lr", 2e-3}}}}}};
  const auto run = resolve({}, deepspeed);
  EXPECT_TRUE(run.config.schedule.deepspeed);
  EXPECT_EQ(run.config.schedule.type, "OneCycle");
  EXPECT_EQ(run.config.schedule.numbers.at("cycle_max_lr"), 2e-3);
}

TEST_F(DeepSpeed, AutomaticScheduleWaitsForTheNumberOfSteps) {
  const Json params = {{"total_num_steps", "auto"}, {"warmup_num_steps", "auto"}, {"warmup_max_lr", "auto"}};
  const Json deepspeed = {{"scheduler", {{"type", "WarmupDecayLR"}, {"params", params}}}};
  const auto run = resolve({{"warmup_ratio", 0.1}, {"learning_rate", 1e-3}}, deepspeed);
  EXPECT_TRUE(run.config.schedule.has_warmup_of_run);
  EXPECT_FALSE(run.config.schedule.numbers.contains("total_num_steps"));
  EXPECT_EQ(run.config.schedule.numbers.at("warmup_max_lr"), 1e-3);
  EXPECT_TRUE(run.settings.at("deepspeed.scheduler.params.total_num_steps").value.is_null());
}

TEST_F(DeepSpeed, RatesOfOptimizerAndScheduleMayDifferWithinTheJson) {
  // As in a file that gives both: the schedule's is the one that holds.
  const Json params = {{"warmup_max_lr", 2e-3}, {"warmup_num_steps", 10}};
  const Json deepspeed = {{"optimizer", {{"type", "AdamW"}, {"params", {{"lr", 3e-3}}}}},
                          {"scheduler", {{"type", "WarmupLR"}, {"params", params}}}};
  const auto run = resolve({{"learning_rate", 3e-3}}, deepspeed);
  EXPECT_EQ(run.config.schedule.numbers.at("warmup_max_lr"), 2e-3);
  EXPECT_EQ(run.config.learning_rate, 3e-3);
}

TEST_F(DeepSpeed, TwoSchedulesAreRefused) {
  const Json deepspeed = {{"scheduler", {{"type", "WarmupLR"}, {"params", {{"warmup_num_steps", 4}}}}}};
  EXPECT_THAT(error_of({{"lr_scheduler_type", "cosine"}}, deepspeed),
              testing::AllOf(testing::HasSubstr("scheduler.type"), testing::HasSubstr("lr_scheduler_type")));
}

TEST_F(DeepSpeed, OtherOptimizersAreRefusedBeforeTheirParameters) {
  const Json deepspeed = {{"optimizer", {{"type", "OneBitAdam"}, {"params", {{"freeze_step", 400}}}}}};
  EXPECT_THAT(error_of({}, deepspeed), testing::HasSubstr("optimizer.type is OneBitAdam"));
}

TEST_F(DeepSpeed, SectionsOfAbsentFeaturesAreRefusedUnlessTurnedOff) {
  EXPECT_THAT(error_of({}, {{"wandb", {{"enabled", true}, {"project", "p"}}}}), testing::HasSubstr(": wandb is not"));
  EXPECT_EQ(error_of({}, {{"wandb", {{"enabled", false}, {"project", "p"}}}}), "");
  EXPECT_THAT(error_of({}, {{"zero_optimization", {{"stage", 3}, {"zenflow", {{"topk_ratio", 0.1}}}}}}),
              testing::HasSubstr("zero_optimization.zenflow"));
  // A section without a switch of its own follows those below it.
  const auto compression = [](bool pruning) {
    return Json{{"compression_training",
                 {{"layer_reduction", {{"enabled", false}}},
                  {"head_pruning", {{"shared_parameters", {{"enabled", pruning}}}}}}}};
  };
  EXPECT_EQ(error_of({}, compression(false)), "");
  EXPECT_THAT(error_of({}, compression(true)), testing::HasSubstr("compression_training"));
}

TEST_F(DeepSpeed, RefusedValuesAreNamedWithTheReason) {
  EXPECT_THAT(error_of({}, {{"bf16", {{"bf16_optimizer_states", true}}}}),
              testing::HasSubstr("bf16.bf16_optimizer_states is true; expected false: master weights"));
  const Json params = {{"freeze_step", 400}};
  EXPECT_THAT(error_of({}, {{"optimizer", {{"type", "Adam"}, {"params", params}}}}),
              testing::HasSubstr("optimizer.params.freeze_step is 400"));
  EXPECT_THAT(error_of({}, {{"zero_optimization", {{"zero_hpz_partition_size", 8}}}}),
              testing::HasSubstr("zero_hpz_partition_size is 8"));
}

TEST_F(DeepSpeed, KeysOfAnotherSectionAreFound) {
  EXPECT_THAT(error_of({}, {{"offload_optimizer", {{"device", "cpu"}}}}),
              testing::HasSubstr("offload_optimizer of DeepSpeed's JSON; did you mean "
                                 "zero_optimization.offload_optimizer?"));
}

TEST_F(DeepSpeed, ZeroOptionsReachTheConfig) {
  // Without the JSON no tensor is kept whole and communication overlaps.
  const auto plain =
      resolve_run(parse_source("zero_stage: 3\nreduction: fast\nranks: 4", "run.yaml", false), "run.yaml", {});
  EXPECT_EQ(plain.config.zero_stage, 3);
  EXPECT_EQ(plain.config.reduction, ReductionOrder::fast);
  EXPECT_EQ(plain.config.ranks, 4);
  EXPECT_EQ(plain.config.zero.param_persistence_threshold, 0);
  EXPECT_TRUE(plain.config.zero.overlap_comm);
  const auto run = resolve(
      {},
      {{"zero_optimization", {{"stage", 3}, {"overlap_comm", false}, {"stage3_param_persistence_threshold", "auto"}}}});
  EXPECT_EQ(run.config.zero_stage, 3);
  EXPECT_FALSE(run.config.zero.overlap_comm);
  EXPECT_EQ(run.config.zero.param_persistence_threshold, 640);  // 10 x hidden_size
}

TEST_F(DeepSpeed, RanksThatShareRowsDoNotCountInTheBatch) {
  const Json layout = {{"train_batch_size", 16}, {"gradient_accumulation_steps", 2}, {"sequence_parallel_size", 2}};
  const auto run = resolve({{"ranks", 8}}, layout);  // 4 ranks see different rows
  EXPECT_EQ(run.config.per_device_train_batch_size, 2);
  EXPECT_EQ(run.settings.at("context_parallel").value, 2);
  EXPECT_THAT(error_of({{"ranks", 3}}, layout),
              testing::AllOf(testing::HasSubstr("ranks is 3"), testing::HasSubstr("context_parallel 2")));
}

TEST_F(DeepSpeed, TensorBoardIsTheRunFilesToo) {
  const Json on = {{"tensorboard", {{"enabled", true}}}}, off = {{"tensorboard", {{"enabled", false}}}};
  EXPECT_TRUE(resolve({}, on).config.report_to_tensorboard);
  EXPECT_TRUE(resolve({{"report_to", "tensorboard"}}, off).config.report_to_tensorboard);
  EXPECT_THAT(error_of({{"report_to", "none"}}, on), testing::HasSubstr("tensorboard.enabled"));
}

TEST_F(DeepSpeed, KeysWithoutEffectAreNamedOnceWithTheReason) {
  const auto run = resolve({}, {{"steps_per_print", 2000},
                                {"zero_optimization", {{"reduce_scatter", true}, {"allgather_partitions", true}}},
                                {"_comment", "mine"}});
  EXPECT_TRUE(run.warnings.empty());
  EXPECT_THAT(run.notes, testing::UnorderedElementsAre(
                             testing::AllOf(testing::HasSubstr("steps_per_print"), testing::HasSubstr("logging_steps")),
                             testing::AllOf(testing::HasSubstr("zero_optimization.reduce_scatter"),
                                            testing::HasSubstr("zero_optimization.allgather_partitions"),
                                            testing::HasSubstr("by unit"))));
}

TEST_F(DeepSpeed, KeysBelowItCanBeOverridden) {
  const auto path = write("ds.json", R"({"gradient_clipping": 0.5, "fp16": {"enabled": false}})");
  const Json run = {{"model_name_or_path", "m"}, {"deepspeed", path}};
  const auto resolved = resolve_run(parse_source(run.dump(), "run.json", false), "run.json",
                                    {{"deepspeed.gradient_clipping", "0.25"}, {"deepspeed.fp16.enabled", "true"}});
  EXPECT_EQ(resolved.config.max_grad_norm, 0.25);
  EXPECT_EQ(resolved.config.precision, Precision::fp16);
  EXPECT_EQ(resolved.settings.at("max_grad_norm").origin, "deepspeed (command line: gradient_clipping)");
}

TEST(DeepSpeedTable, EachKeyHasItsSectionAndIsListedOnce) {
  for (const auto& key : deepspeed_keys()) {
    EXPECT_EQ(find_deepspeed_key(key.path), &key) << key.path;
    const auto dot = key.path.rfind('.');
    if (dot != std::string_view::npos) {
      EXPECT_NE(find_deepspeed_key(key.path.substr(0, dot)), nullptr) << key.path;
    }
    if (!key.run_key.empty()) {
      EXPECT_NE(find_run_key(key.run_key), nullptr) << key.path;
    }
    EXPECT_EQ(key.why.empty(), key.effect == DeepSpeedKey::Effect::honoured) << key.path;
  }
  for (const auto& rename : deepspeed_renames()) {
    EXPECT_NE(find_deepspeed_key(rename.new_path), nullptr) << rename.new_path;
    EXPECT_EQ(find_deepspeed_key(rename.old_path), nullptr) << rename.old_path;
  }
}

}  // namespace
}  // namespace heddle
