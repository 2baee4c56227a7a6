#include "train/loss_scaler.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace heddle {
namespace {

// Gradients that are all zero would double the scale for ever; beyond this a float could not hold scaled values.
constexpr double kLargestScale = 0x1p120;

}  // namespace

LossScaler::LossScaler(const LossScaling& config) : config_(config) {
  state_.scale = config.loss_scale > 0 ? config.loss_scale : std::ldexp(1.0, config.initial_scale_power);
  state_.hysteresis_left = config.hysteresis;
}

void LossScaler::update(bool overflow) {
  if (config_.loss_scale > 0) return;
  if (overflow) {
    state_.steps_without_overflow = 0;
    if (state_.hysteresis_left > 1) {
      --state_.hysteresis_left;
    } else {
      // An initial scale below min_loss_scale stays: an overflow never raises the scale.
      state_.scale = std::min(state_.scale, std::max(state_.scale / 2, config_.min_loss_scale));
    }
    return;
  }
  if (config_.consecutive_hysteresis) state_.hysteresis_left = config_.hysteresis;
  if (++state_.steps_without_overflow % config_.loss_scale_window == 0) {
    state_.hysteresis_left = config_.hysteresis;
    state_.scale = std::min(state_.scale * 2, std::max(state_.scale, kLargestScale));
  }
}

void LossScaler::restore(const State& state) {
  if (!std::isfinite(state.scale) || state.scale <= 0 || state.steps_without_overflow < 0 ||
      state.hysteresis_left < 1) {
    fail("loss scale state ({}, {}, {}) is not sound", state.scale, state.steps_without_overflow,
         state.hysteresis_left);
  }
  state_ = state;
  if (config_.loss_scale > 0) state_.scale = config_.loss_scale;
  state_.hysteresis_left = std::min<std::int64_t>(state_.hysteresis_left, config_.hysteresis);
}

}  // namespace heddle
