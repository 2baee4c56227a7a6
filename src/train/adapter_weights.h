#pragma once

#include <filesystem>
#include <memory>

#include "formats/safetensors.h"

namespace heddle {

/// The trained weights of an adapter by PEFT's names: those of adapter_model.safetensors, or of a LoRA run's checkpoint
/// what its export would have there. A checkpoint is verified first.
std::unique_ptr<WeightFiles> open_adapter_weights(const std::filesystem::path& folder);

}  // namespace heddle
