// Run files that `heddle train` refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "base/error.h"
#include "config/run_config.h"
#include "formats/json.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Run files as the acceptance suite spoils them: {changes of a sound run file, pattern of the error}.
class BadRun : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("heddle-run-file-" + std::to_string(::getpid()));
    fs::create_directories(folder_ / "model");
    std::ofstream(folder_ / "rows.jsonl") << "{}\n";
    std::ofstream(folder_ / "file") << "not a folder\n";
    sound_ = {{"model_name_or_path", (folder_ / "model").string()},
              {"train_file", (folder_ / "rows.jsonl").string()},
              {"output_dir", (folder_ / "out").string()},
              {"max_steps", 2}};
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string refuse(const std::string& text, const RunFile::Overrides& overrides = {}) {
    const auto path = folder_ / "run.json";
    std::ofstream(path, std::ios::binary) << text;
    try {
      RunFile::load(path, overrides).require_training_keys();
    } catch (const Error& e) {
      return e.what();
    }
    return "accepted";
  }
  std::string refuse_changed(const Json& changes) {
    auto run = sound_;
    for (const auto& [key, value] : changes.items()) run[key] = value;
    return refuse(run.dump());
  }

  fs::path folder_;
  Json sound_;
};

TEST_F(BadRun, TheSoundOneIsAccepted) { EXPECT_EQ(refuse(sound_.dump()), "accepted"); }

TEST_F(BadRun, APathThatIsNotThereSaysWhereItWasSought) {
  const auto current = fs::current_path().string();
  EXPECT_THAT(refuse_changed({{"train_file", "no/such.txt"}}),
              HasSubstr("train_file is no/such.txt: no such file or folder in " + current));
  EXPECT_THAT(refuse_changed({{"model_name_or_path", "HuggingFaceTB/SmolLM2-135M"}}),
              testing::EndsWith("; models of the Hub are not fetched, expected a folder on this machine"));
  EXPECT_THAT(refuse_changed({{"model_name_or_path", "/no/such"}}), testing::EndsWith("no such file or folder"));
}

TEST_F(BadRun, WhatMayBeMeantOtherwiseIsAWarning) {
  const auto warning_of = [&](const Json& changes) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(refuse_changed(changes), "accepted");
    return testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warning_of({{"max_steps", 3}}), "");
  EXPECT_THAT(warning_of({{"eval_steps", 4}}),
              HasSubstr("eval_steps is 4, but there is no validation_file: nothing is evaluated\n"));
  EXPECT_THAT(warning_of({{"output_dir", sound_["model_name_or_path"]}}),
              HasSubstr("output_dir is the folder of model_name_or_path, whose weights the trained ones will replace"));
}

TEST_F(BadRun, WrongValuesAreRefusedByName) {
  const std::vector<std::pair<Json, std::string>> cases = {
      {{{"learning_rat", 0.1}}, "learning_rat.*learning_rate"},
      {{{"gradient_acumulation_steps", 2}}, "gradient_acumulation_steps.*gradient_accumulation_steps"},
      {{{"lora", {{"r", 4}, {"lora_alhpa", 8}}}}, "lora_alhpa.*lora_alpha"},
      {{{"learning_rate", "fast"}}, "learning_rate"},
      {{{"bf16", 7}}, "bf16"},
      {{{"max_steps", {2}}}, "max_steps"},
      {{{"max_steps", 2.5}}, "max_steps"},
      {{{"max_steps", -5}}, "max_steps"},
      {{{"per_device_train_batch_size", 0}}, "per_device_train_batch_size"},
      {{{"gradient_accumulation_steps", 0}}, "gradient_accumulation_steps"},
      {{{"per_device_train_batch_size", std::int64_t{1} << 62}}, "per_device_train_batch_size|memory"},
      {{{"max_length", 0}}, "max_length"},
      {{{"learning_rate", -0.1}}, "learning_rate"},
      {{{"adam_beta1", 1.0}}, "adam_beta1"},
      {{{"adam_epsilon", -1e-8}}, "adam_epsilon"},
      {{{"warmup_steps", -1}}, "warmup_steps"},
      {{{"hidden_dropout", 1.5}}, "hidden_dropout"},
      {{{"bf16", true}, {"fp16", true}}, "bf16.*fp16|fp16.*bf16"},
      {{{"lr_scheduler_type", "cosin"}}, "cosin"},
      {{{"optim", "adamq"}}, "adamq"},
      {{{"recompute", "some"}}, "recompute|some"},
      {{{"model_name_or_path", "no/such/model"}}, "no/such/model"},
      {{{"train_file", "no/such/rows.jsonl"}}, "no/such/rows"},
      {{{"validation_file", "no/such/val.jsonl"}}, "no/such/val"},
      {{{"deepspeed", (folder_ / "absent_ds.json").string()}}, "absent_ds\\.json"},
      {{{"resume_from_checkpoint", "no/such/checkpoint-7"}}, "no/such/checkpoint-7"},
      {{{"output_dir", (folder_ / "file").string()}}, "/file"},
      {{{"output_dir", (folder_ / "file" / "out").string()}}, "file/out"},
  };
  for (const auto& [changes, pattern] : cases) {
    const auto error = refuse_changed(changes);
    EXPECT_TRUE(std::regex_search(error, std::regex(pattern, std::regex::icase))) << changes << ": " << error;
    EXPECT_THAT(error, testing::Not(HasSubstr("\n")));
    EXPECT_NE(error, "accepted") << changes;
  }
}

TEST_F(BadRun, MissingKeysAreNamed) {
  for (const auto* key : {"model_name_or_path", "train_file", "output_dir"}) {
    auto run = sound_;
    run.erase(key);
    EXPECT_THAT(refuse(run.dump()), HasSubstr(key));
  }
}

TEST_F(BadRun, CommandsAskForTheKeysThatTheyNeed) {
  const RunFile neither = RunFile::parse("seed: 1", "run.yaml", {});
  const auto names = [](const std::string& key) {
    return testing::ThrowsMessage<Error>(testing::StartsWith("run.yaml: " + key + " is missing"));
  };
  EXPECT_THAT([&] { neither.require_model_key(); }, names("model_name_or_path"));
  EXPECT_THAT([&] { neither.require_data_keys(); }, names("model_name_or_path"));
  const std::string model = "model_name_or_path: " + sound_["model_name_or_path"].get<std::string>();
  const RunFile no_data = RunFile::parse(model, "run.yaml", {});
  no_data.require_model_key();
  EXPECT_THAT([&] { no_data.require_data_keys(); }, names("train_file"));
  const std::string data = "\ntrain_file: " + sound_["train_file"].get<std::string>();
  const RunFile no_output = RunFile::parse(model + data, "run.yaml", {});
  no_output.require_data_keys();
  EXPECT_THAT([&] { no_output.require_training_keys(); }, names("output_dir"));
}

TEST_F(BadRun, WrongTextsAreRefusedWithTheFile) {
  EXPECT_THAT(refuse("max_steps: [1, 2\nlearning_rate: }"), HasSubstr("run.json"));
  EXPECT_THAT(refuse(""), HasSubstr("run.json"));
  EXPECT_THAT(refuse("[1, 2]"), HasSubstr("run.json"));
  const auto sound = sound_.dump();
  EXPECT_THAT(refuse(sound.substr(0, sound.size() - 1) + ", \"max_steps\": 3}"), HasSubstr("max_steps is given twice"));
  EXPECT_THAT(refuse(sound.substr(0, sound.size() - 1) + ", \"learning_rate\": .nan}"), HasSubstr("learning_rate"));
  EXPECT_THAT(refuse(sound, {{"max_step", "3"}}), HasSubstr("max_step; did you mean max_steps?"));
  EXPECT_THROW(
      {
        try {
          RunFile::load(folder_ / "absent.yaml", {});
        } catch (const Error& e) {
          EXPECT_THAT(e.what(), HasSubstr("absent.yaml"));
          throw;
        }
      },
      Error);
}

}  // namespace
}  // namespace heddle
