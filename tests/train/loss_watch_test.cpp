#include "train/loss_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace heddle {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(LossWatch, ASpikeIsAboveAMultipleOfTheMedian) {
  LossWatch watch;
  for (const double loss : {8.0, 1.0, 7.0, 2.0, 6.0, 3.0, 5.0}) watch.add(loss);
  EXPECT_FALSE(watch.is_spike(1e9, 2));  // seven losses say too little
  watch.add(NAN);
  EXPECT_FALSE(watch.median());
  watch.add(4.0);
  EXPECT_EQ(watch.median(), 4.5);
  EXPECT_FALSE(watch.is_spike(9.0, 2));
  EXPECT_TRUE(watch.is_spike(9.1, 2));
  EXPECT_FALSE(watch.is_spike(NAN, 2));
  watch.add(100.0);
  EXPECT_EQ(watch.median(), 5.0);
}

TEST(LossWatch, OldLossesCountNoMore) {
  LossWatch watch;
  for (int i = 0; i < 32; ++i) watch.add(1000);
  for (int i = 0; i < 17; ++i) watch.add(1);
  EXPECT_EQ(watch.median(), 1);
}

TEST(LossWatch, ItComesBackToTheBit) {
  LossWatch watch{.losses = {}, .rewinds = 3, .skipped_rows = 40};
  for (int i = 1; i <= 40; ++i) watch.add(std::sqrt(i) / 3);
  const auto read = [](const Json& document) {
    return read_loss_watch(JsonReader(parse_json(document.dump(), "state"), "manifest.json"));
  };
  EXPECT_EQ(read({{"loss_watch", loss_watch_document(watch)}}), watch);
  EXPECT_EQ(read(Json::object()), LossWatch());  // an older checkpoint
  EXPECT_THAT(
      [&] {
        read({{"loss_watch", {{"losses", "many"}, {"rewinds", 0}, {"skipped_rows", 0}}}});
      },
      ThrowsMessage<Error>(HasSubstr("manifest.json: loss_watch.losses is \"many\"; expected a list")));
}

}  // namespace
}  // namespace heddle
