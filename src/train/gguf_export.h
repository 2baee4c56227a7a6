#pragma once

#include <filesystem>
#include <optional>

#include "base/dtype.h"
#include "train/merged_model.h"
#include "train/run_setup.h"

namespace heddle {

/// Writes the model (a Hugging Face folder, a checkpoint, a GGUF file; with an adapter: merged in) as a GGUF file that
/// llama.cpp loads, with names, metadata and values as its converter has them. `type` is that of the matrices: by
/// default the one they have (of a checkpoint: the model's torch_dtype); norms, biases and other tensors of one
/// dimension are F32. A matrix whose rows are no whole blocks of a quantized type becomes F16, which a note says.
/// Holds a few MiB, or where a matrix is to be transposed (gpt2) that matrix. The file appears under its name when it
/// is whole, synced, and read back as a model that computes the same.
MergeReport export_gguf(const ModelSource& model, const std::filesystem::path& path, std::optional<DType> type);

}  // namespace heddle
