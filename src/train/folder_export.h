#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>

#include "train/run_setup.h"

namespace heddle {

/// What rounding to the files' types took from merged weights.
struct MergeReport {
  std::size_t merged = 0;     ///< tensors that an adapter changed
  double greatest_error = 0;  ///< of an element, absolute
  double relative_error = 0;  ///< root mean square of the errors over that of the adapter's changes
};

/// Writes a model (a Hugging Face folder, a GGUF file, a checkpoint; with an adapter: merged in, W + scaling·B·A, and
/// with DoRA scaled to its magnitudes) as a Hugging Face folder of the same types and files, or all in `torch_dtype`.
/// Quantized weights are decoded to fp32. What the adapter does not touch leaves byte for byte. Holds a piece of one
/// tensor and the adapter's part for it in memory.
MergeReport export_folder(const ModelSource& model, const std::filesystem::path& folder,
                          const std::optional<std::string>& torch_dtype);

}  // namespace heddle
