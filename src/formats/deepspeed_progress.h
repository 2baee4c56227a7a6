#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "formats/torch_pickle.h"

namespace heddle {

/// DeepSpeed's DynamicLossScaler, of an fp16 run.
struct DeepSpeedLossScale {
  double scale = 1;                            ///< cur_scale
  std::int64_t iterations_since_overflow = 0;  ///< cur_iter - last_overflow_iter - 1
  std::int64_t hysteresis_left = 1;            ///< cur_hysteresis
};

/// How far a run of DeepSpeed had come, which is no tensor of its model.
struct DeepSpeedProgress {
  std::int64_t steps = 0;    ///< optimizer steps, skipped ones among them
  std::int64_t skipped = 0;  ///< because their gradients were not finite
  std::int64_t samples = 0;  ///< rows that all ranks were given
  /// By how many updates the optimizer corrects the bias of its moments; none where it does not count.
  std::optional<std::int64_t> updates;
  std::optional<DeepSpeedLossScale> loss_scale;
};

/// The counters of a model state's file.
DeepSpeedProgress read_deepspeed_counters(const TorchPickle& model);

/// What the state of a ZeRO optimizer in `file` adds to them. Throws Error where it contradicts what another rank's
/// said.
void add_optimizer_progress(const TorchPickle& file, const Pickle::Object& state, DeepSpeedProgress& progress);

/// A number of steps as PyTorch's and DeepSpeed's optimizers keep it: whole, or a tensor of one element.
std::int64_t read_deepspeed_step(const TorchPickle& file, const Pickle::Object& object);

}  // namespace heddle
