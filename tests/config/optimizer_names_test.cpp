#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "config/run_config.h"
#include "formats/json.h"

namespace heddle {
namespace {

using testing::HasSubstr;

RunConfig config_of(const Json& run) { return RunFile::parse(run.dump(), "run.json", {}).config(); }

std::string error_of(const Json& run) {
  try {
    RunFile::parse(run.dump(), "run.json", {});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Optimizers, HuggingFacesNamesMeanTheSame) {
  const std::vector<std::pair<const char*, const char*>> names = {{"adamw", "adamw"},
                                                                  {"adamw_torch", "adamw"},
                                                                  {"adamw_torch_fused", "adamw"},
                                                                  {"adamw_8bit", "adamw_8bit"},
                                                                  {"adamw_bnb_8bit", "adamw_8bit"},
                                                                  {"lion", "lion"},
                                                                  {"lion_32bit", "lion"},
                                                                  {"sgd", "sgd"},
                                                                  {"adafactor", "adafactor"},
                                                                  {"muon", "muon"}};
  for (const auto& [written, meant] : names) EXPECT_EQ(config_of({{"optim", written}}).optim, meant);
}

TEST(Optimizers, ArgumentsAreReadByName) {
  using Values = std::map<std::string, double>;
  EXPECT_EQ(config_of({{"optim", "muon"}, {"optim_args", "momentum=0.9,nesterov=false,ns_steps=6"}}).optim_args,
            (Values{{"momentum", 0.9}, {"nesterov", 0}, {"ns_steps", 6}}));
  EXPECT_EQ(config_of({{"optim", "muon"}, {"optim_args", "adjust_lr_fn=match_rms_adamw, adam_lr=3e-4"}}).optim_args,
            (Values{{"adjust_lr_fn", 1}, {"adam_lr", 3e-4}}));
  EXPECT_EQ(config_of({{"optim", "adafactor"}, {"optim_args", "decay_rate=-0.8,relative_step=False"}}).optim_args,
            (Values{{"decay_rate", -0.8}, {"relative_step", 0}}));
}

TEST(Optimizers, WrongArgumentsAreRefusedByName) {
  const auto refuses = [](const char* optim, const char* arguments, const char* text) {
    EXPECT_THAT(error_of({{"optim", optim}, {"optim_args", arguments}}), HasSubstr(text)) << optim << ' ' << arguments;
  };
  refuses("adamw", "momentum=0.9", "adamw takes no arguments");
  refuses("sgd", "momentun=0.9", "momentun, which sgd does not take; expected momentum, dampening or nesterov");
  refuses("sgd", "momentum", "expected NAME=VALUE");
  refuses("sgd", "momentum=-1", "momentum=-1; expected a number from 0 on");
  refuses("sgd", "momentum=x", "momentum=x");
  refuses("sgd", "momentum=0.9,momentum=0.8", "momentum twice");
  refuses("sgd", "nesterov=true", "needs a momentum above 0");
  refuses("sgd", "momentum=0.9,dampening=0.1,nesterov=true", "no dampening");
  refuses("muon", "momentum=1", "from 0 to below 1");
  refuses("muon", "ns_steps=2.5", "a whole number from 1");
  refuses("muon", "adjust_lr_fn=other", "original or match_rms_adamw");
  refuses("adafactor", "relative_step=true", "has false only");
  refuses("adafactor", "clip_threshold=0", "a number above 0");
  refuses("adafactor", "decay_rate=0.8", "a number up to 0");
}

TEST(Optimizers, DeepSpeedsKeepTheirMeaning) {
  const auto with = [](const char* type, const Json& parameters) {
    return Json{{"deepspeed", {{"optimizer", {{"type", type}, {"params", parameters}}}}}};
  };
  const auto lion = config_of(with("Lion", {{"lr", 1e-4}, {"weight_decay", 0.3}}));
  EXPECT_EQ(lion.optim, "lion");
  EXPECT_EQ(lion.learning_rate, 1e-4);
  EXPECT_EQ(lion.weight_decay, 0.3);
  EXPECT_EQ(lion.adam_beta2, 0.99);  // deepspeed/ops/lion: betas=(0.9, 0.99)
  EXPECT_EQ(config_of(with("lion", {{"lr", 1e-4}, {"betas", {0.95, 0.98}}})).adam_beta2, 0.98);
  const auto sgd = config_of(with("SGD", {{"lr", 0.1}, {"momentum", 0.9}, {"nesterov", true}}));
  EXPECT_EQ(sgd.optim, "sgd");
  EXPECT_EQ(sgd.optim_args, (std::map<std::string, double>{{"momentum", 0.9}, {"nesterov", 1.0}}));
  EXPECT_EQ(config_of(with("Adam", {{"lr", 0.1}, {"torch_adam", true}})).optim, "adamw");
  EXPECT_THAT(error_of(with("SGD", {{"lr", 0.1}, {"betas", {0.9, 0.99}}})), HasSubstr("betas"));
  EXPECT_THAT(error_of(with("AdamW", {{"lr", 0.1}, {"momentum", 0.9}})), HasSubstr("momentum"));
  EXPECT_THAT(error_of(with("Lamb", {{"lr", 0.1}})), HasSubstr("it has Adam, AdamW, Lion and SGD"));
  auto against = with("Lion", {{"lr", 1e-4}});
  against["optim"] = "sgd";
  EXPECT_THAT(error_of(against), HasSubstr("optimizer.type is lion, but optim is sgd"));
}

}  // namespace
}  // namespace heddle
