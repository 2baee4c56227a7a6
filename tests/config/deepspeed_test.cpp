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
      const auto run = test.contains("text") ? resolve_text(test["run"], test["text"].get<std::string>())
                                             : resolve(test["run"], test["deepspeed"]);
      check_deepspeed_supported(run.settings);
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

TEST_F(DeepSpeed, EveryKeyOfPublishedFilesIsInTheTable) {
  const auto file = reference_data() / "ds_configs/KEYS.tsv";
  if (!fs::exists(file)) GTEST_SKIP() << file << " is absent";
  // Parameters of optimizers that are refused by their type; a key that DeepSpeed does not know either.
  const std::vector<std::string> refused = {"comm_backend_name", "cuda_aware",      "freeze_step",
                                            "max_coeff",         "min_coeff",       "coeff_beta",
                                            "factor_max",        "factor_min",      "factor_threshold",
                                            "local_step_scaler", "var_freeze_step", "cuda_visible_devices"};
  std::istringstream lines(read_text_file(file));
  std::string line;
  std::getline(lines, line);
  std::size_t known = 0;
  while (std::getline(lines, line)) {
    const auto first = line.find('\t'), second = line.find('\t', first + 1);
    const auto path = line.substr(first + 1, second - first - 1);
    const auto name = path.substr(path.rfind('.') + 1);
    bool is_known = name.starts_with('_') || path.starts_with("scheduler.params.");
    for (const auto& rename : deepspeed_renames()) is_known = is_known || rename.old_path == path;
    for (auto end = path.size(); end != std::string::npos && end > 0; end = path.rfind('.', end - 1)) {
      const auto* key = find_deepspeed_key(path.substr(0, end));
      is_known = is_known || (key != nullptr && (end == path.size() || key->is_free_form));
    }
    known += is_known ? 1 : 0;
    EXPECT_NE(is_known, std::find(refused.begin(), refused.end(), name) != refused.end()) << path;
  }
  EXPECT_GT(known, 200u);
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
  EXPECT_THAT(run.settings.at("learning_rate").origin, testing::EndsWith("ds.json:5)"));
  EXPECT_THAT(run.settings.at("learning_rate").origin, testing::StartsWith("deepspeed ("));
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
  const auto gate = [&](const Json& deepspeed) {
    try {
      check_deepspeed_supported(resolve({}, deepspeed).settings);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_THAT(gate({{"flops_profiler", {{"enabled", true}, {"profile_step", 1}}}}),
              testing::HasSubstr("flops_profiler"));
  EXPECT_EQ(gate({{"flops_profiler", {{"enabled", false}, {"profile_step", 1}}}}), "");
  EXPECT_THAT(gate({{"zero_optimization", {{"stage", 2}}}}), testing::HasSubstr("zero_optimization.stage is 2"));
  EXPECT_EQ(gate({{"zero_optimization", {{"stage", 0}}}}), "");
  EXPECT_THAT(gate({{"fp16", {{"auto_cast", true}}}}), testing::HasSubstr("fp16.auto_cast is true"));
}

TEST_F(DeepSpeed, KeysWithoutEffectAreNamedOnce) {
  const auto run = resolve({}, {{"steps_per_print", 2000}, {"wall_clock_breakdown", false}, {"_comment", "mine"}});
  ASSERT_EQ(run.warnings.size(), 1u);
  EXPECT_THAT(run.warnings[0], testing::AllOf(testing::HasSubstr("steps_per_print"), testing::HasSubstr("wall_clock")));
}

TEST_F(DeepSpeed, KeysBelowItCanBeOverridden) {
  const auto path = write("ds.json", R"({"gradient_clipping": 0.5, "fp16": {"enabled": false}})");
  const Json run = {{"model_name_or_path", "m"}, {"deepspeed", path}};
  const auto resolved = resolve_run(parse_source(run.dump(), "run.json", false), "run.json",
                                    {{"deepspeed.gradient_clipping", "0.25"}, {"deepspeed.fp16.enabled", "true"}});
  EXPECT_EQ(resolved.config.max_grad_norm, 0.25);
  EXPECT_EQ(resolved.config.precision, Precision::fp16);
  EXPECT_EQ(resolved.settings.at("max_grad_norm").origin, "deepspeed (command line)");
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
  }
  for (const auto& rename : deepspeed_renames()) {
    EXPECT_NE(find_deepspeed_key(rename.new_path), nullptr) << rename.new_path;
    EXPECT_EQ(find_deepspeed_key(rename.old_path), nullptr) << rename.old_path;
  }
}

}  // namespace
}  // namespace heddle
