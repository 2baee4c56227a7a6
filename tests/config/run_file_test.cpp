#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "config/run_config.h"
#include "formats/json.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

RunFile parse(const std::string& text, const RunFile::Overrides& overrides = {}) {
  return RunFile::parse(text, "run.yaml", overrides);
}

std::string error_of(const std::string& text, const RunFile::Overrides& overrides = {}) {
  try {
    parse(text, overrides);
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

/// What whoever computes with the run says of it; empty: nothing.
std::string unsupported_of(const RunFile& run) {
  try {
    run.require_supported();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(RunFile, ReadsGroupsOfWeights) {
  const auto run = parse(R"(
model_name_or_path: some/model
freeze: model.embed_tokens
param_groups:
  - {params: "*norm*", lr_scale: 0}
  - {params: [a.*, b.*], learning_rate: 1e-5, weight_decay: 0.1}
)");
  const RunConfig& c = run.config();
  EXPECT_EQ(c.freeze, std::vector<std::string>{"model.embed_tokens"});
  ASSERT_EQ(c.param_groups.size(), 2u);
  EXPECT_EQ(c.param_groups[0].params, std::vector<std::string>{"*norm*"});
  EXPECT_EQ(c.param_groups[0].lr_scale, 0.0);
  EXPECT_EQ(c.param_groups[0].weight_decay, std::nullopt);
  EXPECT_EQ(c.param_groups[1].params, (std::vector<std::string>{"a.*", "b.*"}));
  EXPECT_EQ(c.param_groups[1].learning_rate, 1e-5);
  EXPECT_EQ(c.param_groups[1].weight_decay, 0.1);
  EXPECT_EQ(parse("seed: 1", {{"param_groups", "[{params: x, lr_scale: 2}]"}}).config().param_groups.size(), 1u);
}

TEST(RunFile, RefusesGroupsThatContradictThemselves) {
  const auto group = [](const std::string& text) { return error_of("param_groups: [" + text + "]"); };
  EXPECT_THAT(group("{lr_scale: 1}"), HasSubstr("run.yaml:1: param_groups[0] has no params"));
  EXPECT_THAT(group("{params: x}"), HasSubstr("param_groups[0] changes nothing"));
  EXPECT_THAT(group("{params: x, lr: 1}"), HasSubstr("unknown key param_groups[0].lr; expected params, learning_rate"));
  EXPECT_THAT(group("{params: x, lr_scale: 1, learning_rate: 1}"), HasSubstr("set one of them"));
  EXPECT_THAT(group("{params: x, lr_scale: -1}"), HasSubstr("param_groups[0].lr_scale is -1"));
  EXPECT_THAT(error_of("learning_rate: 0\nparam_groups: [{params: x, learning_rate: 1}]"),
              HasSubstr("learning_rate is 0"));
  EXPECT_THAT(error_of("freeze: a\ntrain_only: b"), HasSubstr("freeze and train_only (run.yaml:2) are both set"));
  EXPECT_THAT(error_of("freeze: a\nlora: {r: 4}"), HasSubstr("freeze is set beside an adapter"));
}

TEST(RunFile, ReadsYamlIntoTheConfig) {
  const auto run = parse(R"(
model_name_or_path: some/model   # a comment
train_file:
  - a.jsonl
  - {path: b.txt, weight: 0.5}
max_length: 512
packing: false
learning_rate: 5e-4
adam_beta2: 0.95
lr_scheduler_type: cosine_with_min_lr
lr_scheduler_kwargs: {min_lr_rate: 1e-1}
warmup_steps: 10
bf16: true
recompute: selective
device_memory: 2GiB
on_bad_row: skip
hidden_dropout: 0
resume_from_checkpoint: false
report_to: tensorboard
save_compression: zstd
torch_dtype: bfloat16
)");
  const auto& c = run.config();
  EXPECT_EQ(c.model_name_or_path, "some/model");
  ASSERT_EQ(c.train_file.size(), 2u);
  EXPECT_EQ(c.train_file[0].path, "a.jsonl");
  EXPECT_EQ(c.train_file[0].weight, 1.0);
  EXPECT_EQ(c.train_file[1].path, "b.txt");
  EXPECT_EQ(c.train_file[1].weight, 0.5);
  EXPECT_EQ(c.max_length, 512);
  EXPECT_EQ(c.packing, std::optional<bool>(false));
  EXPECT_EQ(c.learning_rate, 5e-4);
  EXPECT_EQ(c.adam_beta2, 0.95);
  EXPECT_EQ(c.schedule.type, "cosine_with_min_lr");
  EXPECT_EQ(c.schedule.numbers.at("min_lr_rate"), 0.1);
  EXPECT_EQ(c.schedule.warmup_steps, 10);
  EXPECT_EQ(c.precision, Precision::bf16);
  EXPECT_EQ(c.recompute, Recompute::selective);
  EXPECT_EQ(c.device_memory, std::optional<std::uint64_t>(2147483648u));
  EXPECT_TRUE(c.skip_bad_rows);
  EXPECT_EQ(c.hidden_dropout, std::optional<double>(0.0));
  EXPECT_EQ(c.resume_from_checkpoint, "false");
  EXPECT_TRUE(c.report_to_tensorboard);
  EXPECT_TRUE(c.save_compressed);
  EXPECT_EQ(c.torch_dtype, std::optional<std::string>("bfloat16"));
}

TEST(RunFile, JsonIsReadInFull) {
  // yaml-cpp 0.7 knows no surrogate pairs
  const auto run = parse("{\"output_dir\": \"a\\/\\ud83d\\ude00\\t\", \n\t\"max_steps\": 7, \"packing\": null}");
  EXPECT_EQ(run.config().output_dir, "a/\xf0\x9f\x98\x80\t");
  EXPECT_EQ(run.config().max_steps, 7);
  EXPECT_EQ(run.config().packing, std::nullopt);
}

TEST(RunFile, WhatGoesByEvaluationsNeedsThem) {
  const std::string best = "load_best_model_at_end: true\n";
  EXPECT_EQ(error_of(best + "eval_steps: 4\nsave_steps: 6"),
            "run.yaml:1: load_best_model_at_end needs eval_steps, and save_steps that is a multiple of it; they are 4 "
            "(run.yaml:2) and 6 (run.yaml:3)");
  EXPECT_THAT(error_of(best + "eval_steps: 4"), HasSubstr("0 (default)"));
  EXPECT_THAT(error_of(best + "save_steps: 4"), HasSubstr("0 (default)"));
  EXPECT_THAT(error_of("early_stopping_patience: 3"),
              HasSubstr("early_stopping_patience is 3, which needs eval_steps"));
  EXPECT_THAT(error_of("save_strategy: best"), HasSubstr("save_strategy is best, which needs eval_steps"));
  EXPECT_THAT(error_of(best + "eval_strategy: epoch"), HasSubstr("save_strategy: epoch or best; it is null (default)"));
  EXPECT_EQ(error_of(best + "eval_strategy: epoch\nsave_strategy: epoch\nearly_stopping_patience: 2"), "accepted");
  EXPECT_EQ(error_of(best + "eval_steps: 3\nsave_strategy: best"), "accepted");
  const RunFile run = parse(best + "eval_steps: 4\nsave_steps: 8\nearly_stopping_patience: 3");
  EXPECT_EQ(unsupported_of(run), "");
  EXPECT_TRUE(run.config().load_best_model_at_end);
  EXPECT_EQ(run.config().early_stopping_patience, 3);
}

TEST(RunFile, AStrategyAgreesWithTheStepsBesideIt) {
  EXPECT_EQ(error_of("eval_strategy: epoch\neval_steps: 5"),
            "run.yaml:1: eval_strategy is epoch, which does not go with eval_steps; eval_steps is 5 (run.yaml:2)");
  EXPECT_EQ(error_of("save_strategy: steps"),
            "run.yaml:1: save_strategy is steps, which needs save_steps; save_steps is 0 (default)");
  EXPECT_THAT(error_of("save_strategy: no\nsave_steps: 5"), HasSubstr("does not go with save_steps"));
  EXPECT_TRUE(parse("eval_strategy: epoch").config().evaluates_by_epoch);
  EXPECT_TRUE(parse("save_strategy: epoch").config().saves_by_epoch);
  EXPECT_TRUE(parse("eval_steps: 2\nsave_strategy: best").config().saves_best);
  const auto steps = parse("eval_strategy: steps\neval_steps: 2\nsave_strategy: no").config();
  EXPECT_FALSE(steps.evaluates_by_epoch || steps.saves_by_epoch || steps.saves_best);
}

TEST(RunFile, AnEmptyValueIsWhereItsKeyIs) {
  EXPECT_THAT(error_of("max_steps:\n\n\nmax_length: 7"), StartsWith("run.yaml:1: max_steps is empty"));
  EXPECT_THAT(error_of("bf16: true\nmax_steps:     # as many as it takes\n"), StartsWith("run.yaml:2: max_steps"));
  EXPECT_THAT(error_of("lora:\n  r:\n  lora_alpha: 8"), StartsWith("run.yaml:2: lora.r is empty"));
}

TEST(RunFile, ATabThatIndentsIsNamed) {
  EXPECT_THAT(error_of("lora:\n\tr: 8"), HasSubstr("run.yaml:2: is neither YAML nor JSON"));
  EXPECT_THAT(error_of("lora:\n\tr: 8"), HasSubstr("a tab indents the line, expected spaces"));
  EXPECT_THAT(error_of("lora: {r: 8\n"), Not(HasSubstr("tab")));
}

TEST(RunFile, ANumberAboveAllNumbersIsToldTheBound) {
  EXPECT_EQ(error_of("learning_rate: 1e38"),
            "run.yaml:1: learning_rate is 1e38; expected a number of at least 0, below 2^63");
  EXPECT_EQ(error_of("seed: 18446744073709551615"),
            "run.yaml:1: seed is 18446744073709551615; expected a whole number of at least 0, below 2^63");
  EXPECT_EQ(error_of("learning_rate: -1"), "run.yaml:1: learning_rate is -1; expected a number of at least 0");
}

TEST(RunFile, RewindingNeedsCheckpointsAndAFactorAboveOne) {
  EXPECT_EQ(error_of("rewind_on_spike: 3"),
            "run.yaml:1: rewind_on_spike is 3, which needs checkpoints; save_steps and save_minutes are 0");
  EXPECT_THAT(error_of("rewind_on_spike: 1\nsave_steps: 5"), HasSubstr("expected a number above 1"));
  EXPECT_EQ(parse("rewind_on_spike: 2.5\nsave_minutes: 5").config().rewind_on_spike, 2.5);
}

TEST(RunFile, DefaultsAreTheTables) {
  // The table's defaults and RunConfig's own say the same.
  const auto c = parse("{}").config();
  const RunConfig d;
  EXPECT_EQ(c.max_length, d.max_length);
  EXPECT_EQ(c.packing, d.packing);
  EXPECT_EQ(c.shuffle, d.shuffle);
  EXPECT_EQ(c.add_bos, d.add_bos);
  EXPECT_EQ(c.skip_bad_rows, d.skip_bad_rows);
  EXPECT_EQ(c.per_device_train_batch_size, d.per_device_train_batch_size);
  EXPECT_EQ(c.gradient_accumulation_steps, d.gradient_accumulation_steps);
  EXPECT_EQ(c.per_device_eval_batch_size, d.per_device_eval_batch_size);
  EXPECT_EQ(c.max_steps, d.max_steps);
  EXPECT_EQ(c.num_train_epochs, d.num_train_epochs);
  EXPECT_EQ(c.seed, d.seed);
  EXPECT_EQ(c.eval_steps, d.eval_steps);
  EXPECT_EQ(c.logging_steps, d.logging_steps);
  EXPECT_EQ(c.max_skipped_steps, d.max_skipped_steps);
  EXPECT_EQ(c.rewind_on_spike, d.rewind_on_spike);
  EXPECT_EQ(c.max_rewinds, d.max_rewinds);
  EXPECT_EQ(c.check_replicas_steps, d.check_replicas_steps);
  EXPECT_EQ(c.early_stopping_patience, d.early_stopping_patience);
  EXPECT_EQ(c.load_best_model_at_end, d.load_best_model_at_end);
  EXPECT_EQ(c.optim, d.optim);
  EXPECT_EQ(c.learning_rate, d.learning_rate);
  EXPECT_EQ(c.weight_decay, d.weight_decay);
  EXPECT_EQ(c.adam_beta1, d.adam_beta1);
  EXPECT_EQ(c.adam_beta2, d.adam_beta2);
  EXPECT_EQ(c.adam_epsilon, d.adam_epsilon);
  EXPECT_EQ(c.max_grad_norm, d.max_grad_norm);
  EXPECT_EQ(c.schedule.type, d.schedule.type);
  EXPECT_EQ(c.precision, d.precision);
  EXPECT_EQ(c.recompute, d.recompute);
  EXPECT_EQ(c.device_memory, d.device_memory);
  EXPECT_EQ(c.ranks, d.ranks);
  EXPECT_EQ(c.threads, d.threads);
  EXPECT_EQ(c.attention_dropout, d.attention_dropout);
  EXPECT_EQ(c.save_steps, d.save_steps);
  EXPECT_EQ(c.save_total_limit, d.save_total_limit);
  EXPECT_EQ(c.save_keep_steps, d.save_keep_steps);
  EXPECT_EQ(c.save_minutes, d.save_minutes);
  EXPECT_EQ(c.resume_from_checkpoint, d.resume_from_checkpoint);
  EXPECT_EQ(c.report_to_tensorboard, d.report_to_tensorboard);
  EXPECT_EQ(c.save_compressed, d.save_compressed);
  EXPECT_EQ(c.loss_scaling.initial_scale_power, 16);
  EXPECT_EQ(c.loss_scaling.loss_scale_window, 1000);
  EXPECT_EQ(c.loss_scaling.hysteresis, 2);
}

TEST(RunFile, OverridesAreReadByTheirKeysType) {
  const auto run = parse("max_steps: 5\nlr_scheduler_type: polynomial\nlr_scheduler_kwargs: {power: 2}\n",
                         {{"max_steps", "9"},
                          {"output_dir", "2024"},
                          {"learning_rate", "1e-3"},
                          {"bf16", "true"},
                          {"lr_scheduler_kwargs.lr_end", "1e-5"},
                          {"train_file", "[a.txt, b.txt]"},
                          {"max_steps", "10"}});
  EXPECT_EQ(run.config().max_steps, 10);
  EXPECT_EQ(run.config().output_dir, "2024");
  EXPECT_EQ(run.config().learning_rate, 1e-3);
  EXPECT_EQ(run.config().precision, Precision::bf16);
  EXPECT_EQ(run.config().schedule.numbers.at("power"), 2);
  EXPECT_EQ(run.config().schedule.numbers.at("lr_end"), 1e-5);
  EXPECT_EQ(run.config().train_file.size(), 2u);
}

TEST(RunFile, EffectiveNamesEachOrigin) {
  const auto run = parse("max_steps: 5\n\nlearning_rate: 1e-3\ngradient_checkpointing: true\n", {{"seed", "7"}});
  const auto e = run.effective();
  EXPECT_EQ(e["max_steps"], (nlohmann::json{{"value", 5}, {"origin", "run.yaml:1"}}));
  EXPECT_EQ(e["learning_rate"], (nlohmann::json{{"value", 1e-3}, {"origin", "run.yaml:3"}}));
  EXPECT_EQ(e["seed"], (nlohmann::json{{"value", 7}, {"origin", "command line"}}));
  EXPECT_EQ(e["weight_decay"], (nlohmann::json{{"value", 0.0}, {"origin", "default"}}));
  EXPECT_EQ(e["recompute"], (nlohmann::json{{"value", "full"}, {"origin", "run.yaml:4"}}));
  EXPECT_EQ(e["lora"]["value"], nullptr);
  EXPECT_FALSE(e.contains("lora.r"));
}

TEST(RunFile, GradientCheckpointingIsRecomputeFull) {
  EXPECT_EQ(parse("gradient_checkpointing: true").config().recompute, Recompute::full);
  EXPECT_EQ(parse("gradient_checkpointing: true\nrecompute: full").config().recompute, Recompute::full);
  EXPECT_EQ(parse("gradient_checkpointing: false\nrecompute: none").config().recompute, Recompute::none);
  for (const auto* text :
       {"gradient_checkpointing: true\nrecompute: none", "gradient_checkpointing: false\nrecompute: full",
        "recompute: selective\ngradient_checkpointing: true"}) {
    EXPECT_THAT(error_of(text), AllOf(HasSubstr("gradient_checkpointing"), HasSubstr("recompute"))) << text;
  }
}

TEST(RunFile, YamlTrapsAreClosed) {
  EXPECT_EQ(parse("learning_rate: 5e-5").config().learning_rate, 5e-5);  // text in YAML 1.1
  EXPECT_EQ(parse("learning_rate: 1E-3").config().learning_rate, 1e-3);
  EXPECT_EQ(parse("learning_rate: .5").config().learning_rate, 0.5);
  EXPECT_EQ(parse("max_steps: 1e3").config().max_steps, 1000);
  EXPECT_THAT(error_of("bf16: yes"), HasSubstr("expected true or false"));
  EXPECT_THAT(error_of("bf16: on"), HasSubstr("bf16"));
  EXPECT_THAT(error_of("bf16: \"true\""), HasSubstr("bf16"));
  EXPECT_THAT(error_of("max_steps: 010"), HasSubstr("max_steps"));  // 8 in YAML 1.1
  EXPECT_THAT(error_of("max_steps: 0x10"), HasSubstr("max_steps"));
  EXPECT_THAT(error_of("learning_rate: .inf"), HasSubstr("learning_rate"));
  EXPECT_THAT(error_of("learning_rate: .nan"), HasSubstr("learning_rate"));
  EXPECT_THAT(error_of("learning_rate: nan"), HasSubstr("learning_rate"));
  EXPECT_THAT(error_of("learning_rate: 1e999"), HasSubstr("learning_rate"));
  EXPECT_THAT(error_of("output_dir: 2024"), HasSubstr("output_dir is 2024; expected text"));
  EXPECT_EQ(parse("output_dir: '2024'").config().output_dir, "2024");
  EXPECT_EQ(parse("output_dir: no").config().output_dir, "no");
  EXPECT_THAT(error_of("output_dir: ''"), HasSubstr("output_dir"));
  EXPECT_THAT(error_of("learning_rate:"), HasSubstr("learning_rate is empty"));
}

TEST(RunFile, AnchorsAndMergesAreResolved) {
  const auto run = parse(R"(
train_file: &files [a.txt]
validation_file: *files
lr_scheduler_type: polynomial
lr_scheduler_kwargs: &kwargs {power: 2}
)");
  EXPECT_EQ(run.config().validation_file[0].path, "a.txt");
  const auto merged = parse(R"(
lr_scheduler_type: polynomial
lr_scheduler_kwargs: {<<: {power: 2, lr_end: 0}, power: 3}
)");
  EXPECT_EQ(merged.config().schedule.numbers.at("power"), 3);
  EXPECT_EQ(merged.config().schedule.numbers.at("lr_end"), 0);
}

TEST(RunFile, EveryErrorNamesItsLine) {
  EXPECT_THAT(error_of("max_steps: 3\n\nseed: x"), StartsWith("run.yaml:3: seed is \"x\"; expected a whole number"));
  EXPECT_THAT(error_of("max_steps: 3\nmax_step: 3"),
              StartsWith("run.yaml:2: unknown key max_step; did you mean max_steps?"));
  EXPECT_THAT(error_of("seed: 1\nlogging_strategy: epoch\n"),
              StartsWith("run.yaml:2: unknown key logging_strategy; of Hugging Face's arguments, which `heddle config "
                         "--from-trainer` turns into a run file; here: logging_steps"));
  EXPECT_THAT(error_of("push_to_hub: true\n"), HasSubstr("here: nothing is sent over the network"));
  EXPECT_THAT(error_of("seed: 1\nmax_steps: 3\nseed: 2"),
              StartsWith("run.yaml:3: seed is given twice, first at run.yaml:1"));
  EXPECT_THAT(error_of("seed: 1\nmax_steps: [1, 2\n"), StartsWith("run.yaml:"));
  EXPECT_THAT(error_of("seed: 1\n---\nseed: 2"), HasSubstr("more than one"));
  EXPECT_THAT(error_of("seed: \xff"), StartsWith("run.yaml:1: is not UTF-8"));
  EXPECT_THAT(error_of(std::string("seed: 1\nbf16: \0", 15)), StartsWith("run.yaml:2: "));
  EXPECT_THAT(error_of("- seed"), HasSubstr("a list"));
  EXPECT_THAT(error_of(""), HasSubstr("run.yaml: is empty"));
  EXPECT_THAT(error_of("# nothing"), HasSubstr("run.yaml: is empty"));
  EXPECT_THAT(error_of("*a"), StartsWith("run.yaml"));
}

TEST(RunFile, AliasesCannotGrowWithoutBound) {
  std::string text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 9; ++i) {
    text += fmt::format("a{0}: &a{0} [", i);
    for (int k = 0; k < 10; ++k) text += fmt::format("*a{}, ", i - 1);
    text += "]\n";
  }
  EXPECT_THAT(error_of(text), HasSubstr("more than 100000 values"));
}

TEST(RunFile, WhatIsWrongInAListIsNamedByItsIndex) {
  EXPECT_THAT(error_of("train_file: [a.jsonl, {path: b.jsonl, weight: -1}]"),
              HasSubstr("train_file[1].weight is -1; expected a number above 0"));
  EXPECT_THAT(error_of("train_file: [{weight: 1}]"), HasSubstr("train_file[0] has no path"));
  EXPECT_THAT(error_of("train_file: [a, {path: b, wight: 1}]"), HasSubstr("unknown key train_file[1].wight"));
  EXPECT_THAT(error_of("validation_file: {path: a, weight: 0}"), HasSubstr("validation_file.weight is 0"));
  EXPECT_THAT(error_of("lora: {target_modules: [q_proj, 7]}"), HasSubstr("lora.target_modules[1] is 7"));
}

TEST(RunFile, ContradictionsNameBothKeys) {
  EXPECT_THAT(error_of("bf16: true\nfp16: true"), AllOf(HasSubstr("bf16"), HasSubstr("fp16")));
  EXPECT_THAT(error_of("model_name_or_path: a\nconfig_name: b"),
              AllOf(HasSubstr("model_name_or_path"), HasSubstr("config_name")));
  EXPECT_THAT(error_of("warmup_steps: 3\nwarmup_ratio: 0.1"),
              AllOf(HasSubstr("warmup_steps"), HasSubstr("warmup_ratio")));
}

TEST(RunFile, TheLossOfPairsIsSaidByItsTypeAlone) {
  const auto pairs = parse("loss_type: ipo\nbeta: 0.2\nmax_prompt_length: 7\ntruncation_mode: keep_end").config();
  EXPECT_TRUE(pairs.trains_on_pairs());
  EXPECT_EQ(pairs.preference.loss_type, "ipo");
  EXPECT_EQ(pairs.preference.beta, 0.2);
  EXPECT_EQ(pairs.preference.max_prompt_length, 7);
  EXPECT_TRUE(pairs.preference.keeps_end);
  EXPECT_FALSE(parse("loss_type: nll").config().trains_on_pairs());
  for (const char* key : {"beta: 0.1", "label_smoothing: 0.1", "max_prompt_length: 8", "truncation_mode: keep_end",
                          "precompute_ref_log_probs: true"})
    EXPECT_THAT(error_of(key), AllOf(StartsWith("run.yaml:1: "), HasSubstr("expected loss_type: sigmoid (DPO)")));
  for (const char* key : {"packing: true", "assistant_only_loss: true", "completion_only_loss: false", "train_on: last",
                          "label_smoothing_factor: 0.1", "z_loss: 1e-4"})
    EXPECT_THAT(error_of(std::string("loss_type: sigmoid\n") + key),
                AllOf(StartsWith("run.yaml:2: "), HasSubstr("loss_type is sigmoid (run.yaml:1)")));
  EXPECT_THAT(error_of("loss_type: hinge\nlabel_smoothing: 0.1"), HasSubstr("sigmoid and robust have it"));
  EXPECT_THAT(error_of("loss_type: sigmoid\nbeta: 0"), HasSubstr("beta is 0; expected a number above 0"));
}

TEST(RunFile, ScheduleArgumentsAreChecked) {
  const auto with = [](const std::string& type, const std::string& kwargs) {
    return error_of("lr_scheduler_type: " + type + "\nlr_scheduler_kwargs: " + kwargs);
  };
  EXPECT_EQ(with("cosine", "{num_cycles: 0.5}"), "accepted");
  EXPECT_EQ(with("cosine", "{}"), "accepted");
  EXPECT_THAT(with("cosine", "{num_cycle: 0.5}"), HasSubstr("did you mean num_cycles?"));
  EXPECT_THAT(with("linear", "{power: 2}"), HasSubstr("linear, which takes none"));
  EXPECT_THAT(with("cosine", "{num_cycles: many}"), HasSubstr("lr_scheduler_kwargs.num_cycles is \"many\""));
  EXPECT_THAT(with("cosine_with_restarts", "{num_cycles: 1.5}"), HasSubstr("whole number"));
  EXPECT_THAT(with("cosine_with_min_lr", "{}"), HasSubstr("min_lr_rate"));
  EXPECT_THAT(with("cosine_with_min_lr", "{min_lr: 0, min_lr_rate: 0}"), HasSubstr("exclude each other"));
  EXPECT_THAT(with("warmup_stable_decay", "{}"), HasSubstr("num_decay_steps"));
  EXPECT_THAT(with("warmup_stable_decay", "{num_decay_steps: 3, decay_type: sqrt}"), HasSubstr("1-sqrt"));
  EXPECT_THAT(with("polynomial", "{lr_end: 1}"), HasSubstr("lr_end"));
  EXPECT_THAT(with("reduce_lr_on_plateau", "{}"), HasSubstr("follows the evaluation loss"));
  EXPECT_THAT(with("WarmupLR", "{}"), HasSubstr("deepspeed.scheduler"));
  EXPECT_THAT(with("cosine", "3"), HasSubstr("lr_scheduler_kwargs is 3"));
}

TEST(RunFile, EveryKBlocksNeedsARecomputation) {
  EXPECT_EQ(parse("recompute: full\nrecompute_every: 3").config().recompute_every, 3);
  EXPECT_EQ(parse("gradient_checkpointing: true\nrecompute_every: 2").config().recompute_every, 2);
  EXPECT_EQ(parse("recompute: auto").config().recompute_every, 1);
  for (const auto* text :
       {"recompute_every: 2", "recompute: none\nrecompute_every: 2", "recompute: auto\nrecompute_every: 2"})
    EXPECT_THAT(error_of(text), AllOf(HasSubstr("recompute_every is 2"), HasSubstr("expected selective or full")))
        << text;
}

TEST(RunFile, TilesOfTheMlpAreCountedWhereItIsTiled) {
  EXPECT_EQ(parse("tiled_mlp: true\ntiled_mlp_num_shards: 3").config().tiled_mlp_num_shards, 3);
  EXPECT_TRUE(parse("tiled_mlp: true").config().tiled_mlp);
  EXPECT_THAT(error_of("tiled_mlp_num_shards: 3"),
              AllOf(HasSubstr("run.yaml:1"), HasSubstr("expected tiled_mlp: true")));
}

TEST(RunFile, AbsentFeaturesAreResolvedButRefusedInOneLineByWhoComputes) {
  for (const auto* text :
       {"tensor_parallel: 2", "pipeline_parallel: 2", "context_parallel: 2", "sequence_parallel: true"}) {
    const std::string key(text, std::string(text).find(':'));
    const auto run = parse(fmt::format("{{{}, ranks: 2}}", text));
    EXPECT_EQ(run.effective().at(key).at("origin"), "run.yaml:1");
    EXPECT_THAT(unsupported_of(run),
                AllOf(StartsWith("run.yaml:1: "), HasSubstr("this version does not have"), HasSubstr(key)))
        << text;
  }
  for (const auto* text : {"offload_optimizer: none", "tensor_parallel: 1", "lora: null", "load_in_4bit: false",
                           "bnb_4bit_quant_type: fp4", "train_on: last", "completion_only_loss: true",
                           "assistant_only_loss: true", "zero_stage: 3", "ranks: 2", "reduction: fast"}) {
    EXPECT_EQ(unsupported_of(parse(text)), "");
  }
}

TEST(RunFile, ColumnsAreAMapOfNames) {
  using Columns = std::map<std::string, std::string>;
  EXPECT_EQ(parse("columns: {prompt: question, completion: answer}").config().columns,
            (Columns{{"prompt", "question"}, {"completion", "answer"}}));
  EXPECT_EQ(parse("seed: 1").config().columns, Columns{});
  EXPECT_EQ(RunFile::parse("seed: 1", "run.yaml", {{"columns.text", "body"}}).config().columns,
            (Columns{{"text", "body"}}));
  EXPECT_THAT(error_of("columns: messages"), HasSubstr("columns is \"messages\"; expected a map of names"));
  EXPECT_THAT(error_of("columns: {text: 3}"), HasSubstr("columns.text is 3; expected text"));
}

TEST(RunFile, TheLauncherDecidesTheRanks) {
  const auto ranks_of = [](const std::string& text, std::optional<int> launcher) {
    return RunFile::parse(text, "run.yaml", {}, launcher);
  };
  EXPECT_EQ(ranks_of("ranks: 3", std::nullopt).config().ranks, 3);
  EXPECT_EQ(ranks_of("seed: 1", std::nullopt).config().ranks, 1);
  EXPECT_EQ(ranks_of("seed: 1", 4).config().ranks, 4);
  EXPECT_EQ(ranks_of("seed: 1", 4).effective().at("ranks").at("origin"), "launcher");
  EXPECT_EQ(ranks_of("ranks: 4", 4).config().ranks, 4);
  // train_batch_size 24 = micro batch x accumulation 2 x ranks
  const std::string triple = "deepspeed: {train_batch_size: 24, gradient_accumulation_steps: 2}";
  EXPECT_EQ(ranks_of(triple, 4).config().per_device_train_batch_size, 3);
  EXPECT_EQ(ranks_of(triple, std::nullopt).config().per_device_train_batch_size, 12);
  try {
    ranks_of("ranks: 2", 4);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), AllOf(StartsWith("run.yaml:1: ranks is 2"), HasSubstr("the launcher started 4")));
  }
}

TEST(RunFile, NvmeNeedsAFolder) {
  for (const auto* key : {"offload_optimizer", "offload_gradients", "offload_param", "offload_activations"}) {
    EXPECT_THAT(error_of(fmt::format("{}: nvme", key)),
                AllOf(StartsWith("run.yaml:1: "), HasSubstr(key), HasSubstr("nvme_path")));
    EXPECT_EQ(error_of(fmt::format("{{{}: nvme, nvme_path: swap}}", key)), "accepted");
  }
  for (const auto* key : {"offload_optimizer", "offload_param", "offload_activations"})
    EXPECT_EQ(error_of(fmt::format("{}: cpu", key)), "accepted");
}

TEST(RunFile, GradientsInHostMemoryFollowTheOptimizer) {
  EXPECT_EQ(error_of("offload_gradients: cpu"),
            "run.yaml:1: offload_gradients is cpu, and offload_optimizer is none (default); expected cpu or nvme");
  for (const auto* optimizer : {"cpu", "nvme"}) {
    for (const auto* gradients : {"cpu", "nvme"}) {
      EXPECT_EQ(error_of(fmt::format("{{offload_gradients: {}, offload_optimizer: {}, nvme_path: swap}}", gradients,
                                     optimizer)),
                "accepted");
    }
  }
}

TEST(RunFile, RanksAreSharedEvenly) {
  EXPECT_THAT(error_of("{ranks: 6, tensor_parallel: 2, pipeline_parallel: 2}"),
              AllOf(HasSubstr("ranks is 6"), HasSubstr("tensor_parallel 2"), HasSubstr("pipeline_parallel 2")));
  EXPECT_EQ(error_of("{ranks: 8, tensor_parallel: 2, pipeline_parallel: 2}"), "accepted");
}

TEST(RunFile, WrongNamesComeBeforeAbsentFeatures) {
  EXPECT_THAT(error_of("lora: {r: 4, lora_alhpa: 8}"), HasSubstr("lora.lora_alhpa; did you mean lora.lora_alpha?"));
  EXPECT_THAT(error_of("", {}), HasSubstr("empty"));
  EXPECT_THAT(error_of("seed: 1", {{"lora.lora_alhpa", "8"}}),
              StartsWith("command line: unknown key lora.lora_alhpa; did you mean lora.lora_alpha?"));
  EXPECT_THAT(error_of("seed: 1", {{"lora.depth", "8"}}),
              AllOf(StartsWith("command line: unknown key lora.depth; expected "), HasSubstr("target_modules")));
  EXPECT_THAT(error_of("lora: {r: four}"), HasSubstr("lora.r is \"four\""));
  EXPECT_THAT(error_of("seed: 1", {{"max_steps.x", "8"}}), HasSubstr("unknown key max_steps.x"));
}

TEST(RunFile, FromOverridesTakesAModel) {
  EXPECT_EQ(RunFile::from_overrides("dir/model", {}).config().model_name_or_path, "dir/model");
  const auto run = RunFile::from_overrides("dir/config.json", {{"max_length", "4096"}});
  EXPECT_EQ(run.config().config_name, "dir/config.json");
  EXPECT_EQ(run.config().max_length, 4096);
  EXPECT_THROW(RunFile::from_overrides("m", {{"max_lenght", "1"}}), Error);
}

}  // namespace
}  // namespace heddle
