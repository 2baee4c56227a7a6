#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "train/merged_model.h"
#include "train/run_setup.h"

namespace heddle {

/// Writes a model (a Hugging Face folder, a GGUF file, a checkpoint; with an adapter: merged in) as a Hugging Face
/// folder of the same types and files, or all in `torch_dtype`. Quantized weights are decoded to fp32. What the adapter
/// does not touch leaves byte for byte. Holds a piece of one tensor and the adapter's part for it in memory.
MergeReport export_folder(const ModelSource& model, const std::filesystem::path& folder,
                          const std::optional<std::string>& torch_dtype);

}  // namespace heddle
