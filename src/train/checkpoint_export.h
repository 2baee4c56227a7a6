#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "train/weights.h"

namespace heddle {

/// What a checkpoint's state document says under "export": how its weights are laid out in a model folder.
Json export_document(const WeightSource& source, const std::optional<std::string>& torch_dtype);

/// Writes the model folder that training would have written at that step, byte for byte: weights, config.json,
/// tokenizer. What was frozen comes from the base model, which is where it was. Holds a few MiB in memory, whatever the
/// size of the model. The checkpoint is verified by its opener.
void export_checkpoint(const Checkpoint& checkpoint, const std::filesystem::path& folder);

/// Writes the adapter of a LoRA run's checkpoint, or of an adapter's folder, as PEFT's files. Throws Error for what is
/// neither.
void export_adapter(const std::filesystem::path& source, const std::filesystem::path& folder);

}  // namespace heddle
