// TrainingArguments as run files. What an argument means is from transformers' documentation of TrainingArguments.
#include "config/from_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "config/run_keys.h"
#include "config/source_node.h"
#include "config/trainer_arguments.h"
#include "config/yaml_writer.h"
#include "formats/json.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

ConvertedRun convert(const Json& arguments, const RunFile::Overrides& overrides = {}) {
  return run_file_from_trainer_text(arguments.dump(1), "args.json", overrides);
}
/// With a key that is no default: a file of comments alone is none.
RunConfig config_of(Json arguments, const RunFile::Overrides& overrides = {}) {
  arguments["output_dir"] = "out";
  return RunFile::parse(convert(arguments, overrides).yaml, "run.yaml", {}).config();
}
std::string error_of(const Json& arguments, const RunFile::Overrides& overrides = {}) {
  try {
    convert(arguments, overrides);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

TEST(FromTrainer, ArgumentsOfOneNameBecomeTheKey) {
  const auto run = config_of({{"output_dir", "out"},
                              {"per_device_train_batch_size", 4},
                              {"gradient_accumulation_steps", 2},
                              {"learning_rate", 3e-4},
                              {"weight_decay", 0.1},
                              {"adam_beta1", 0.8},
                              {"adam_beta2", 0.95},
                              {"adam_epsilon", 1e-6},
                              {"max_grad_norm", 0.5},
                              {"num_train_epochs", 1.5},
                              {"seed", 7},
                              {"bf16", true},
                              {"lr_scheduler_type", "cosine_with_min_lr"},
                              {"lr_scheduler_kwargs", {{"min_lr_rate", 0.1}}}});
  EXPECT_EQ(run.output_dir, "out");
  EXPECT_EQ(run.per_device_train_batch_size, 4);
  EXPECT_EQ(run.gradient_accumulation_steps, 2);
  EXPECT_EQ(run.learning_rate, 3e-4);
  EXPECT_EQ(run.weight_decay, 0.1);
  EXPECT_EQ(run.adam_beta1, 0.8);
  EXPECT_EQ(run.adam_beta2, 0.95);
  EXPECT_EQ(run.adam_epsilon, 1e-6);
  EXPECT_EQ(run.max_grad_norm, 0.5);
  EXPECT_EQ(run.num_train_epochs, 1.5);
  EXPECT_EQ(run.seed, 7u);
  EXPECT_EQ(run.precision, Precision::bf16);
  EXPECT_EQ(run.schedule.type, "cosine_with_min_lr");
  EXPECT_EQ(run.schedule.numbers.at("min_lr_rate"), 0.1);
}

TEST(FromTrainer, TrlsDpoConfigIsKnown) {
  // The fields of trl.DPOConfig 1.16.0 that are not TrainingArguments', at their defaults but for the first four.
  Json arguments = {{"loss_type", Json::array({"ipo"})},
                    {"beta", 0.3},
                    {"max_length", 512},
                    {"activation_offloading", true},
                    {"model_init_kwargs", nullptr},
                    {"trust_remote_code", false},
                    {"router_aux_loss_coef", nullptr},
                    {"disable_dropout", true},
                    {"dataset_num_proc", nullptr},
                    {"truncation_mode", "keep_start"},
                    {"padding_free", false},
                    {"pad_to_multiple_of", "auto"},
                    {"precompute_ref_log_probs", false},
                    {"precompute_ref_batch_size", nullptr},
                    {"loss_weights", nullptr},
                    {"ld_alpha", nullptr},
                    {"f_divergence_type", "reverse_kl"},
                    {"f_alpha_divergence_coef", 0.5},
                    {"label_smoothing", 0.0},
                    {"use_weighting", false},
                    {"discopop_tau", 0.05},
                    {"sync_ref_model", false},
                    {"ref_model_mixup_alpha", 0.6},
                    {"ref_model_sync_steps", 512},
                    {"pad_token", nullptr}};
  EXPECT_THAT(convert(arguments).notes, IsEmpty());
  const RunConfig run = config_of(arguments);
  EXPECT_EQ(run.preference.loss_type, "ipo");
  EXPECT_EQ(run.preference.beta, 0.3);
  EXPECT_EQ(run.max_length, 512);
  EXPECT_EQ(run.offload_activations, OffloadDevice::cpu);
  const std::vector<std::pair<const char*, Json>> others = {
      {"ld_alpha", 0.5},        {"rpo_alpha", 1.0},        {"f_divergence_type", "js_divergence"},
      {"use_weighting", true},  {"loss_weights", {0.8}},   {"sync_ref_model", true},
      {"reference_free", true}, {"disable_dropout", false}};
  for (const auto& [name, value] : others) {
    Json other = arguments;
    other[name] = value;
    EXPECT_THAT(error_of(other), HasSubstr(std::string(name) + " is ")) << name;
  }
  arguments["loss_type"] = {"sigmoid", "bco_pair", "sft"};
  EXPECT_THAT(error_of(arguments), HasSubstr("expected one loss"));
  arguments["loss_type"] = "exo_pair";
  EXPECT_THAT(error_of(arguments), HasSubstr("loss_type is \"exo_pair\"; expected nll, sigmoid"));
}

TEST(FromTrainer, DefaultsAreLeftOut) {
  const auto converted = convert(
      {{"learning_rate", 5e-5}, {"optim", "adamw_torch_fused"}, {"max_steps", -1}, {"label_smoothing_factor", 0.0}});
  EXPECT_THAT(converted.notes, IsEmpty());
  EXPECT_THAT(converted.yaml, AllOf(Not(HasSubstr("learning_rate")), HasSubstr("# model_name_or_path")));
}

TEST(FromTrainer, WarmupIsStepsOrAPartOfThem) {
  EXPECT_EQ(config_of({{"warmup_steps", 7}}).schedule.warmup_steps, 7);
  EXPECT_EQ(config_of({{"warmup_steps", 0.05}}).schedule.warmup_ratio, 0.05);  // version 5
  EXPECT_EQ(config_of({{"warmup_steps", 0}, {"warmup_ratio", 0.1}}).schedule.warmup_ratio, 0.1);
  // "Overrides any effect of warmup_ratio."
  const auto both = convert({{"warmup_steps", 7}, {"warmup_ratio", 0.1}});
  EXPECT_THAT(both.notes, ElementsAre(HasSubstr("warmup_ratio 0.1 is left out")));
}

TEST(FromTrainer, StrategiesDecideWhichStepsHold) {
  const auto steps = config_of({{"max_steps", 200},
                                {"logging_steps", 10},
                                {"eval_strategy", "steps"},
                                {"eval_steps", 0.1},
                                {"save_strategy", "steps"},
                                {"save_steps", 25},
                                {"save_total_limit", 2}});
  EXPECT_EQ(steps.logging_steps, 10);
  EXPECT_EQ(steps.eval_steps, 20);
  EXPECT_EQ(steps.save_steps, 25);
  EXPECT_EQ(steps.save_total_limit, 2);
  EXPECT_EQ(config_of({{"evaluation_strategy", "steps"}, {"logging_steps", 10}, {"eval_steps", nullptr}}).eval_steps,
            10);
  const auto none =
      config_of({{"eval_strategy", "no"}, {"eval_steps", 5}, {"save_strategy", "no"}, {"save_steps", 500}});
  EXPECT_EQ(none.eval_steps, 0);
  EXPECT_EQ(none.save_steps, 0);
  const auto epochs = config_of({{"eval_strategy", "epoch"}, {"save_strategy", "epoch"}, {"save_steps", 500}});
  EXPECT_TRUE(epochs.evaluates_by_epoch && epochs.saves_by_epoch);
  EXPECT_EQ(epochs.save_steps, 0);
  EXPECT_TRUE(config_of({{"evaluation_strategy", "epoch"}, {"save_strategy", "best"}}).saves_best);
  EXPECT_THAT(error_of({{"save_steps", 0.1}}), HasSubstr("save_steps is 0.1, a part of all steps"));
}

TEST(FromTrainer, ParallelismAndReports) {
  const auto run = convert({{"fsdp", {"full_shard", "auto_wrap", "offload"}}, {"report_to", {"wandb", "tensorboard"}}});
  const auto effective = RunFile::parse(run.yaml, "run.yaml", {}).effective();
  EXPECT_EQ(effective.at("zero_stage").at("value"), 3);
  EXPECT_EQ(effective.at("offload_param").at("value"), "cpu");
  EXPECT_EQ(effective.at("report_to").at("value"), "tensorboard");
  EXPECT_THAT(run.notes, ElementsAre(HasSubstr("wandb")));
  EXPECT_EQ(config_of({{"fsdp", "shard_grad_op auto_wrap"}}).zero_stage, 2);
  EXPECT_EQ(config_of({{"fsdp", ""}, {"report_to", "none"}}).zero_stage, 0);
  EXPECT_FALSE(config_of({{"train_sampling_strategy", "sequential"}}).shuffle);
}

TEST(FromTrainer, OptimizersAndTermsOfTheLossAreTakenOver) {
  const auto sgd = config_of({{"optim", "sgd"}, {"optim_args", "momentum=0.9, nesterov=True"}});
  EXPECT_EQ(sgd.optim, "sgd");
  EXPECT_EQ(sgd.optim_args, (std::map<std::string, double>{{"momentum", 0.9}, {"nesterov", 1.0}}));
  EXPECT_EQ(config_of({{"optim", "adamw_bnb_8bit"}}).optim, "adamw_8bit");
  EXPECT_EQ(config_of({{"adafactor", true}}).optim, "adafactor");
  EXPECT_THAT(convert({{"optim", "adamw_torch"}, {"optim_args", "a=1"}}).notes, ElementsAre(HasSubstr("optim_args")));
  const auto terms = config_of({{"label_smoothing_factor", 0.1}, {"neftune_noise_alpha", 5}});
  EXPECT_EQ(terms.label_smoothing_factor, 0.1);
  EXPECT_EQ(terms.neftune_noise_alpha, 5.0);
}

TEST(FromTrainer, WhatTrainsSomethingElseIsRefusedByName) {
  EXPECT_THAT(error_of({{"optim", "lomo"}}), HasSubstr("optim is \"lomo\""));
  EXPECT_THAT(error_of({{"group_by_length", true}}), HasSubstr("group_by_length"));
  EXPECT_THAT(error_of({{"dataloader_drop_last", true}}), HasSubstr("dataloader_drop_last"));
  EXPECT_THAT(error_of({{"metric_for_best_model", "accuracy"}}), HasSubstr("metric_for_best_model"));
  EXPECT_THAT(error_of({{"learnig_rate", 0.1}}), HasSubstr("learnig_rate; did you mean learning_rate?"));
  EXPECT_THAT(error_of({{"learning_rate", "fast"}}), HasSubstr("args.json:2: learning_rate is \"fast\""));
  EXPECT_THAT(error_of({{"bf16", true}, {"fp16", true}}), AllOf(HasSubstr("args.json:2"), HasSubstr("args.json:3")));
}

TEST(FromTrainer, KeysOfTheRunFileAndOverridesAreTakenOver) {
  const auto converted =
      convert({{"model_name_or_path", "some/model"}, {"train_file", "a.jsonl"}, {"max_seq_length", 64}},
              {{"lora.r", "4"}, {"output_dir", "2024"}, {"seed", "9"}});
  const auto effective = RunFile::parse(converted.yaml, "run.yaml", {}).effective();
  EXPECT_EQ(effective.at("model_name_or_path").at("value"), "some/model");
  EXPECT_EQ(effective.at("max_length").at("value"), 64);
  EXPECT_EQ(effective.at("lora.r").at("value"), 4);
  EXPECT_EQ(effective.at("output_dir").at("value"), "2024");
  EXPECT_EQ(effective.at("seed").at("value"), 9);
  EXPECT_THAT(converted.yaml, AllOf(HasSubstr("train_file: a.jsonl\n"), HasSubstr("output_dir: \"2024\"\n")));
  EXPECT_THAT(error_of({{"seed", 3}}, {{"sed", "1"}}), HasSubstr("sed; did you mean seed?"));
}

TEST(FromTrainer, DeepSpeedIsTheEntryOrASeparateFile) {
  const Json deepspeed = {{"zero_optimization", {{"stage", 2}}},
                          {"train_micro_batch_size_per_gpu", "auto"},
                          {"scheduler", {{"type", "WarmupLR"}, {"params", {{"warmup_num_steps", "auto"}}}}}};
  const Json arguments = {{"per_device_train_batch_size", 3},
                          {"warmup_steps", 5},
                          {"lr_scheduler_type", "cosine"},
                          {"deepspeed", deepspeed}};
  const auto converted = convert(arguments);
  EXPECT_THAT(converted.notes, ElementsAre(HasSubstr("lr_scheduler_type cosine is left out")));
  const auto run = RunFile::parse(converted.yaml, "run.yaml", {}).config();
  EXPECT_EQ(run.zero_stage, 2);
  EXPECT_EQ(run.per_device_train_batch_size, 3);
  EXPECT_EQ(run.schedule.type, "WarmupLR");
  EXPECT_EQ(run.schedule.numbers.at("warmup_num_steps"), 5);

  const auto path = std::filesystem::temp_directory_path() / fmt::format("heddle-trainer-ds-{}.json", ::getpid());
  std::ofstream(path) << deepspeed.dump();
  EXPECT_EQ(config_of({{"deepspeed", nullptr}}, {{"deepspeed", path.string()}}).zero_stage, 2);
  EXPECT_THAT(error_of(arguments, {{"deepspeed", path.string()}}), HasSubstr("has a deepspeed of its own"));
  std::filesystem::remove(path);
  EXPECT_THAT(error_of({{"deepspeed", path.string()}}), HasSubstr(path.string()));
  EXPECT_THAT(error_of({{"deepspeed", {{"zero_optimization", {{"stage", 4}}}}}}),
              HasSubstr("zero_optimization.stage is 4"));
}

TEST(TrainerArguments, EachRowIsListedOnceAndSaysWhy) {
  for (const auto& row : trainer_arguments()) {
    EXPECT_EQ(find_trainer_argument(row.name), &row) << row.name;
    const bool has_key = row.use == TrainerArgument::Use::run_key || row.use == TrainerArgument::Use::rule;
    EXPECT_EQ(has_key, !row.run_key.empty()) << row.name;
    EXPECT_EQ(row.why.empty(), row.use == TrainerArgument::Use::run_key) << row.name;
    if (has_key) {
      EXPECT_NE(find_run_key(row.run_key), nullptr) << row.name;
    }
  }
}

TEST(YamlWriter, WhatIsWrittenIsReadBack) {
  const Json value = {{"plain", "a/b-c_d.json"},
                      {"number", "12"},
                      {"word", "yes"},
                      {"null", "null"},
                      {"colon", "a: b"},
                      {"empty", ""},
                      {"line", "a\nb"},
                      {"dash", "- a"},
                      {"letters", "größe"},
                      {"whole", 3},
                      {"fraction", 1e-5},
                      {"flag", true},
                      {"nothing", nullptr},
                      {"list", {1, "b"}},
                      {"map", {{"a", {{"b", 1}}}}},
                      {"none", Json::object()},
                      {"odd key: x", 1}};
  std::string text;
  for (const auto& [key, entry] : value.items()) text += yaml_entry(key, entry);
  EXPECT_EQ(read_untyped(parse_yaml(text, "test")), value) << text;
  EXPECT_EQ(yaml_entry("path", "a/b-c_d.json"), "path: a/b-c_d.json\n");
  EXPECT_EQ(yaml_entry("answer", "yes"), "answer: \"yes\"\n");
}

}  // namespace
}  // namespace heddle
