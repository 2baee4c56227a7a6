#include "train/training_state.h"

#include "base/error.h"
#include "formats/json_reader.h"
#include "train/weights.h"

namespace heddle {
namespace {

std::span<std::byte> bytes_of(const TensorView& view) {
  return {static_cast<std::byte*>(view.data), static_cast<std::size_t>(view.elements()) * dtype_bytes(view.dtype)};
}

/// {name in the checkpoint, where it lies}, in the order of the parameters.
std::vector<std::pair<std::string, TensorView>> state_tensors(const Parameters& parameters, const Executor& executor) {
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const auto& parameter : parameters.list) {
    tensors.emplace_back("weights/" + parameter.name, master_of(executor, parameter.name));
    if (!parameter.is_trainable) continue;
    tensors.emplace_back("exp_avg/" + parameter.name, executor.persistent(exp_avg_label(parameter.name)));
    tensors.emplace_back("exp_avg_sq/" + parameter.name, executor.persistent(exp_avg_sq_label(parameter.name)));
  }
  return tensors;
}

}  // namespace

std::vector<CheckpointTensor> checkpoint_tensors(const Parameters& parameters, const Executor& executor) {
  std::vector<CheckpointTensor> tensors;
  for (const auto& [name, view] : state_tensors(parameters, executor)) {
    const auto extents = view.shape.extents();
    tensors.push_back({name, view.dtype, {extents.begin(), extents.end()}, bytes_of(view)});
  }
  return tensors;
}

Json state_document(const TrainingState& state, const RunConfig& run) {
  return {{"step", state.step},
          {"updates", state.updates},
          {"skipped_in_a_row", state.skipped_in_a_row},
          {"seed", run.seed},
          {"loss_scaler",
           {{"scale", state.loss_scaler.scale},
            {"steps_without_overflow", state.loss_scaler.steps_without_overflow},
            {"hysteresis_left", state.loss_scaler.hysteresis_left}}}};
}

TrainingState read_state(const Checkpoint& checkpoint) {
  const JsonReader reader(checkpoint.state(), (checkpoint.folder() / "manifest.json").string());
  const JsonReader scaler = reader.object("loss_scaler");
  TrainingState state;
  state.step = reader.integer("step", 0, INT64_MAX);
  state.updates = reader.integer("updates", 0, state.step);
  state.skipped_in_a_row = reader.integer("skipped_in_a_row", 0, state.step);
  state.loss_scaler.scale = scaler.positive_number("scale");
  state.loss_scaler.steps_without_overflow = scaler.integer("steps_without_overflow", 0, INT64_MAX);
  state.loss_scaler.hysteresis_left = scaler.integer("hysteresis_left", 0, INT64_MAX);
  return state;
}

void restore_tensors(const Checkpoint& checkpoint, const Parameters& parameters, Executor& executor) {
  for (const auto& [name, view] : state_tensors(parameters, executor))
    checkpoint.read(name, view.dtype, bytes_of(view));
  round_master_weights(parameters, executor);
}

std::optional<Checkpoint> find_resume_point(const RunConfig& run) {
  if (run.resume_from_checkpoint == "false") return std::nullopt;
  if (run.resume_from_checkpoint == "auto") return newest_checkpoint(run.output_dir);
  if (!std::filesystem::is_directory(run.resume_from_checkpoint)) {
    fail("resume_from_checkpoint: there is no checkpoint {}", run.resume_from_checkpoint);
  }
  return Checkpoint(run.resume_from_checkpoint);
}

}  // namespace heddle
