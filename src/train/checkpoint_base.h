#pragma once

#include <memory>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_weights.h"
#include "comm/communicator.h"
#include "formats/safetensors.h"
#include "train/weights.h"

/// The base model of a checkpoint that leaves frozen weights out.
namespace heddle {

/// Tells one base from another: of names, types, shapes and some values of its files.
std::string weights_digest(const WeightFiles& files);

/// The base that the checkpoint's state names; null where it holds all weights, or those of an adapter. Throws Error
/// where it is not there, or another than the run's. Called by all ranks, who share the verifying.
std::unique_ptr<WeightFiles> open_base(const Checkpoint& checkpoint, Communicator& communicator);

/// How the checkpoint's weights are laid out in a model folder.
WeightSource export_source(const Checkpoint& checkpoint);

/// The weights of a checkpoint, and where it has none those of its base, by the model's names; as open_base.
std::unique_ptr<WeightFiles> open_checkpoint_weights(Checkpoint checkpoint, Communicator& communicator);

}  // namespace heddle
