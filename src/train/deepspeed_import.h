#pragma once

#include <filesystem>

#include "formats/deepspeed_checkpoint.h"
#include "train/run_setup.h"

namespace heddle {

/// Writes OUTPUT_DIR/checkpoint-STEP with what a run of DeepSpeed had of its training state: master weights and the
/// optimizer's moments, its steps and updates, and the loss scale of an fp16 run. `model` tells how the weights are
/// named here. Tensors are copied piece by piece; checksums of the source are compared first. Throws Error naming what
/// the source lacks, and what Heddle could not go on from. Returns the folder.
std::filesystem::path import_deepspeed_checkpoint(const DeepSpeedCheckpoint& source, const ModelSource& model,
                                                  const std::filesystem::path& output_dir);

}  // namespace heddle
