#include "train/loss_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace heddle {
namespace {

LossScaling config_of(int power, int window, int hysteresis, bool consecutive = false, double least = 1) {
  LossScaling config;
  config.initial_scale_power = power;
  config.loss_scale_window = window;
  config.hysteresis = hysteresis;
  config.consecutive_hysteresis = consecutive;
  config.min_loss_scale = least;
  return config;
}

void update(LossScaler& scaler, const char* steps) {
  for (; *steps != '\0'; ++steps) scaler.update(*steps == 'x');
}

TEST(LossScaler, StartsAtTwoToThePowerThatDeepSpeedHas) {
  EXPECT_EQ(LossScaler(LossScaling{}).scale(), 65536.0);  // DeepSpeed's default, initial_scale_power 16
  EXPECT_EQ(LossScaler(config_of(24, 1000, 1)).scale(), 16777216.0);
}

TEST(LossScaler, WithoutHysteresisEachOverflowHalvesTheScale) {
  LossScaler scaler(config_of(24, 1000, 1));
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(scaler.scale(), std::ldexp(1.0, 24 - i));
    scaler.update(true);
  }
}

TEST(LossScaler, HysteresisSparesTheFirstOverflows) {
  LossScaler scaler(config_of(10, 1000, 3));
  update(scaler, "xx");
  EXPECT_EQ(scaler.scale(), 1024.0);
  update(scaler, "x");
  EXPECT_EQ(scaler.scale(), 512.0);
  update(scaler, "x");  // used up: each one counts now
  EXPECT_EQ(scaler.scale(), 256.0);
  update(scaler, ".x");  // a good step does not refill it
  EXPECT_EQ(scaler.scale(), 128.0);
}

TEST(LossScaler, ConsecutiveHysteresisIsRefilledByAGoodStep) {
  LossScaler scaler(config_of(10, 1000, 2, true));
  update(scaler, "x.x.x.");
  EXPECT_EQ(scaler.scale(), 1024.0);
  update(scaler, "xx");
  EXPECT_EQ(scaler.scale(), 512.0);
}

TEST(LossScaler, AWindowOfGoodStepsDoublesTheScaleAndRefillsHysteresis) {
  LossScaler scaler(config_of(10, 4, 2));
  update(scaler, "...");
  EXPECT_EQ(scaler.scale(), 1024.0);
  update(scaler, ".");
  EXPECT_EQ(scaler.scale(), 2048.0);
  update(scaler, "....");
  EXPECT_EQ(scaler.scale(), 4096.0);
  update(scaler, "x...");  // takes one of hysteresis
  EXPECT_EQ(scaler.scale(), 4096.0);
  update(scaler, ".");
  EXPECT_EQ(scaler.scale(), 8192.0);
  update(scaler, "x");
  EXPECT_EQ(scaler.scale(), 8192.0);  // refilled
  update(scaler, "x");
  EXPECT_EQ(scaler.scale(), 4096.0);
}

TEST(LossScaler, AnOverflowStartsTheWindowAnew) {
  LossScaler scaler(config_of(10, 4, 2));
  update(scaler, "..x...");
  EXPECT_EQ(scaler.scale(), 1024.0);
  update(scaler, ".");
  EXPECT_EQ(scaler.scale(), 2048.0);
}

TEST(LossScaler, NeverFallsBelowTheMinimumNorRisesForEver) {
  LossScaler scaler(config_of(3, 1, 1, false, 2));
  update(scaler, "xxxxxxxx");
  EXPECT_EQ(scaler.scale(), 2.0);
  for (int i = 0; i < 5000; ++i) scaler.update(false);
  EXPECT_TRUE(std::isfinite(static_cast<float>(scaler.scale())));
}

TEST(LossScaler, AnOverflowDoesNotRaiseAScaleBelowTheMinimum) {
  LossScaler scaler(config_of(0, 1000, 1, false, 4));
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1.0);
}

TEST(LossScaler, AStaticScaleStays) {
  LossScaling config;
  config.loss_scale = 128;
  LossScaler scaler(config);
  update(scaler, "x.x.xxxx....");
  EXPECT_EQ(scaler.scale(), 128.0);
}

TEST(LossScaler, ContinuesFromItsState) {
  LossScaler whole(config_of(10, 3, 2));
  LossScaler first(config_of(10, 3, 2));
  update(whole, "x..xx....x.");
  update(first, "x..xx");
  LossScaler second(config_of(10, 3, 2));
  second.restore(first.state());
  update(second, "....x.");
  EXPECT_EQ(second.state(), whole.state());
}

TEST(LossScaler, RefusesAStateThatNoRunReached) {
  LossScaler scaler{LossScaling{}};
  EXPECT_THROW(scaler.restore({0.0, 0, 1}), Error);
  EXPECT_THROW(scaler.restore({std::numeric_limits<double>::infinity(), 0, 1}), Error);
  EXPECT_THROW(scaler.restore({1.0, -1, 1}), Error);
  EXPECT_THROW(scaler.restore({1.0, 0, 0}), Error);
}

}  // namespace
}  // namespace heddle
