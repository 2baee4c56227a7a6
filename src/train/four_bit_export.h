#pragma once

#include <filesystem>

#include "base/dtype.h"
#include "train/run_setup.h"

namespace heddle {

/// Writes the model (a Hugging Face folder, a GGUF file, a checkpoint) as transformers and bitsandbytes save one in
/// four bits: linear layers of the blocks as `type`, in the tensors of quantize/bitsandbytes.h and with bitsandbytes'
/// codes; all else as it is, or decoded to fp32 where it was quantized; config.json with their quantization_config. The
/// source's shards are kept. Holds one tensor in four bits and a piece of it in fp32. Throws Error for an adapter, for
/// a model that is in four bits already, and for one whose linear layers lie transposed.
void export_four_bit_folder(const ModelSource& model, const std::filesystem::path& folder, DType type);

}  // namespace heddle
