#include "train/weight_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

/// Two blocks, the second the head's neighbour; the embedding is the head too.
std::vector<NamedWeight> weights() {
  return {{"model.embed_tokens.weight", {"model.embed_tokens.weight", "lm_head.weight"}},
          {"model.layers.0.mlp.up_proj.weight", {"model.layers.0.mlp.up_proj.weight"}},
          {"model.layers.1.mlp.up_proj.weight", {"model.layers.1.mlp.up_proj.weight"}},
          {"model.layers.10.mlp.up_proj.weight", {"model.layers.10.mlp.up_proj.weight"}},
          {"model.norm.weight", {"model.norm.weight"}}};
}

std::vector<std::string> trained(const RunConfig& run) {
  const WeightGroups groups(run, weights());
  std::vector<std::string> names;
  for (const auto& weight : weights()) {
    if (groups.trains(weight.weight)) names.push_back(weight.weight);
  }
  return names;
}

RunConfig freezing(std::vector<std::string> patterns) {
  RunConfig run;
  run.freeze = std::move(patterns);
  return run;
}

TEST(WeightGroups, APatternNamesTensorsOrAllOfAModule) {
  EXPECT_THAT(trained(freezing({"model.layers.1", "model.norm.weight"})),
              testing::ElementsAre("model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight",
                                   "model.layers.10.mlp.up_proj.weight"));
  EXPECT_THAT(trained(freezing({"*up_proj*"})), testing::ElementsAre("model.embed_tokens.weight", "model.norm.weight"));
  EXPECT_THAT(
      trained(freezing({"model.layers.[0-9]"})),
      testing::ElementsAre("model.embed_tokens.weight", "model.layers.10.mlp.up_proj.weight", "model.norm.weight"));
}

TEST(WeightGroups, ATiedWeightAnswersToBothNames) {
  EXPECT_EQ(trained(freezing({"lm_head"})), trained(freezing({"model.embed_tokens"})));
  EXPECT_EQ(trained(freezing({"lm_head"})).size(), 4u);
}

TEST(WeightGroups, TrainOnlyFreezesAllElse) {
  RunConfig run;
  run.train_only = {"*norm*"};
  EXPECT_THAT(trained(run), testing::ElementsAre("model.norm.weight"));
}

TEST(WeightGroups, APatternThatNamesNothingIsRefusedWithTheNearest) {
  EXPECT_THAT([] { trained(freezing({"model.layer.1"})); },
              ThrowsMessage<Error>(HasSubstr("freeze: model.layer.1 names no weight of the model; did you mean "
                                             "model.layers.1?")));
  EXPECT_THAT([] { trained(freezing({"up_proj"})); }, ThrowsMessage<Error>(HasSubstr("did you mean *.up_proj?")));
  EXPECT_THAT([] { trained(freezing({"*"})); }, ThrowsMessage<Error>(HasSubstr("no weight to train")));
}

TEST(WeightGroups, TheFirstGroupThatNamesAWeightCounts) {
  RunConfig run;
  run.learning_rate = 2e-3;
  run.param_groups = {{{"model.layers.0"}, 1e-3, {}, 0.0}, {{"model.layers"}, {}, 3.0, {}}};
  const WeightGroups groups(run, weights());
  const auto first = groups.treatment("model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(first.learning_rate_scale, 0.5);
  EXPECT_EQ(first.weight_decay, 0.0);
  const auto second = groups.treatment("model.layers.1.mlp.up_proj.weight");
  EXPECT_EQ(second.learning_rate_scale, 3.0);
  EXPECT_EQ(second.weight_decay, std::nullopt);
  EXPECT_EQ(groups.treatment("model.norm.weight").learning_rate_scale, 1.0);
}

TEST(WeightGroups, AGroupWithoutAWeightOfItsOwnIsRefused) {
  RunConfig run;
  run.freeze = {"*norm*"};
  run.param_groups = {{{"*norm*"}, {}, 3.0, {}}};
  EXPECT_THAT([&] { WeightGroups(run, weights()); },
              ThrowsMessage<Error>(HasSubstr("param_groups[0].params: all that it names is frozen")));
  run.freeze.clear();
  run.param_groups = {{{"*"}, {}, 3.0, {}}, {{"*norm*"}, {}, 2.0, {}}};
  EXPECT_THAT([&] { WeightGroups(run, weights()); },
              ThrowsMessage<Error>(HasSubstr("param_groups[1].params: all that it names is frozen, or in a group")));
}

}  // namespace
}  // namespace heddle
