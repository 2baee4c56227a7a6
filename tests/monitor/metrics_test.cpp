#include "monitor/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "formats/json.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

StepMetrics step(std::int64_t number, double loss = 2.5) {
  StepMetrics metrics;
  metrics.step = number;
  metrics.loss = loss;
  metrics.grad_norm = 1.0;
  return metrics;
}

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

TEST(Metrics, AStepLineHasTheDocumentedKeysInTheirOrder) {
  auto metrics = step(7);
  metrics.loss_scale = 65536;
  const auto line = Json::parse(metrics_line(metrics));
  EXPECT_EQ(keys_of(line), (std::vector<std::string>{"step", "epoch", "loss", "grad_norm", "learning_rate",
                                                     "num_tokens", "num_supervised_tokens", "tokens_per_second",
                                                     "step_time", "skipped", "loss_scale", "time"}));
  EXPECT_EQ(keys_of(line["time"]), (std::vector<std::string>{"data", "forward", "backward", "optimizer",
                                                             "communication", "offload", "checkpoint"}));
  EXPECT_TRUE(line["skipped"].is_boolean());
  EXPECT_FALSE(Json::parse(metrics_line(step(7))).contains("loss_scale"));
}

TEST(Metrics, AnEvaluationLineHasTheDocumentedKeys) {
  const auto line = Json::parse(metrics_line(EvalMetrics{40, 1.5, std::exp(1.5), 9000}));
  EXPECT_EQ(keys_of(line), (std::vector<std::string>{"step", "eval_loss", "eval_perplexity", "eval_num_tokens"}));
  EXPECT_EQ(line["eval_num_tokens"], 9000);
}

TEST(Metrics, NumbersReadBackToTheSameBits) {
  Random random(1, 2);
  for (int i = 0; i < 20000; ++i) {
    auto metrics = step(1);
    metrics.loss = std::bit_cast<double>((std::uint64_t{random.word()} << 32) | random.word());
    metrics.learning_rate = std::bit_cast<float>(random.word());  // every fp32 value is an fp64 value
    if (!std::isfinite(metrics.loss) || !std::isfinite(metrics.learning_rate)) continue;
    const auto line = Json::parse(metrics_line(metrics));
    ASSERT_EQ(std::bit_cast<std::uint64_t>(line["loss"].get<double>()), std::bit_cast<std::uint64_t>(metrics.loss))
        << line;
    ASSERT_EQ(line["learning_rate"].get<double>(), metrics.learning_rate);
  }
}

TEST(Metrics, WhatIsNotFiniteIsNullAndTheStepSkipped) {
  for (const double bad : {kNan, kInfinity, -kInfinity}) {
    const auto loss = Json::parse(metrics_line(step(3, bad)));
    EXPECT_TRUE(loss["loss"].is_null());
    EXPECT_EQ(loss["skipped"], true);
    auto metrics = step(3);
    metrics.grad_norm = bad;
    const auto norm = Json::parse(metrics_line(metrics));
    EXPECT_TRUE(norm["grad_norm"].is_null());
    EXPECT_EQ(norm["skipped"], true);
  }
  EXPECT_EQ(Json::parse(metrics_line(step(3)))["skipped"], false);
  EXPECT_TRUE(Json::parse(metrics_line(EvalMetrics{1, 800.0, kInfinity, 5}))["eval_perplexity"].is_null());
}

TEST(MetricsFile, ReadingGivesBackWhatWasWritten) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  {
    MetricsFile file(path, 1);
    auto first = step(1, 0.1);
    first.num_tokens = 512;
    first.loss_scale = 1024;
    first.time.backward = 0.125;
    file.append(first);
    file.append(EvalMetrics{1, 3.25, 25.75, 77});
    file.append(step(2, kNan));
  }
  const auto history = read_metrics(path);
  ASSERT_EQ(history.steps.size(), 2u);
  EXPECT_EQ(history.steps[0].loss, 0.1);
  EXPECT_EQ(history.steps[0].num_tokens, 512);
  EXPECT_EQ(history.steps[0].loss_scale, 1024.0);
  EXPECT_EQ(history.steps[0].time.backward, 0.125);
  EXPECT_TRUE(std::isnan(history.steps[1].loss));
  EXPECT_TRUE(history.steps[1].skipped);
  ASSERT_EQ(history.evaluations.size(), 1u);
  EXPECT_EQ(history.evaluations[0].perplexity, 25.75);
}

TEST(MetricsFile, ResumingKeepsEarlierLinesByteForByteAndDropsLaterOnes) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  // Spacing and number forms that metrics_line would not write: keeping must not mean writing again.
  const std::string kept =
      "{\"step\":1,\"loss\":2.50}\n{\"step\": 2, \"loss\": 1e0}\n{\"step\":2, \"eval_loss\": 2.0}\n";
  write_text_to(path, kept + "{\"step\":3,\"loss\":2.0}\n{\"step\":3,\"eval_loss\":2.0}\n{\"step\":4,\"lo");
  {
    MetricsFile file(path, 3);
    EXPECT_EQ(text_of(path), kept);
    file.append(step(3));
  }
  EXPECT_EQ(text_of(path), kept + metrics_line(step(3)));
}

TEST(MetricsFile, ACutLastLineIsDroppedOnResume) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  const std::string whole = metrics_line(step(1));
  for (std::size_t cut = 0; cut < whole.size(); ++cut) {
    write_text_to(path, whole + metrics_line(step(2)).substr(0, cut));
    MetricsFile file(path, 100);
    ASSERT_EQ(text_of(path), whole) << "cut after " << cut;
  }
}

TEST(MetricsFile, AFolderInItsPlaceIsNamed) {
  const TemporaryFolder folder;
  EXPECT_THAT([&] { read_metrics(folder.path()); },
              ThrowsMessage<Error>(HasSubstr(folder.path().string() + ": is a folder; expected a file")));
  EXPECT_TRUE(read_metrics(folder.path() / "absent").steps.empty());
}

TEST(MetricsFile, AFreshRunStartsFromNothing) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  write_text_to(path, metrics_line(step(1)));
  const MetricsFile file(path, 1);
  EXPECT_EQ(text_of(path), "");
}

TEST(MetricsFile, EachLineIsInTheFileWhenAppendReturns) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "metrics.jsonl";
  MetricsFile file(path, 1);
  file.append(step(1));
  EXPECT_EQ(text_of(path), metrics_line(step(1)));
}

}  // namespace
}  // namespace heddle
