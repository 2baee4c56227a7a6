#pragma once

#include <cstdint>

#include "config/run_config.h"

namespace heddle {

/// The factor on the loss of an fp16 run, so that small gradients do not vanish in fp16, with the meaning of the keys
/// of DeepSpeed's `fp16` section:
///   loss_scale > 0         that scale, for ever;
///   initial_scale_power    the first scale is 2^this;
///   hysteresis             the scale is halved at an overflow only once this many overflows have been counted, that
///   one
///                          included; from then on each overflow halves it, until the count starts anew: when the
///                          scale grows, or, with consecutive_hysteresis, at each step without overflow;
///   loss_scale_window      so many steps in a row without overflow double the scale;
///   min_loss_scale         the scale never falls below.
/// At min_loss_scale a further overflow leaves the scale as it is: DeepSpeed stops the run there, here
/// max_skipped_steps of the run file decides when to stop.
class LossScaler {
 public:
  /// What a checkpoint keeps.
  struct State {
    double scale = 1;
    std::int64_t steps_without_overflow = 0;
    std::int64_t hysteresis_left = 1;
    bool operator==(const State&) const = default;
  };

  explicit LossScaler(const LossScaling& config);

  double scale() const { return state_.scale; }
  /// After each optimizer step: `overflow` if its gradients were not finite, so that it was skipped.
  void update(bool overflow);

  const State& state() const { return state_; }
  /// Throws Error for a state that no run can have reached.
  void restore(const State& state);

 private:
  LossScaling config_;
  State state_;
};

}  // namespace heddle
