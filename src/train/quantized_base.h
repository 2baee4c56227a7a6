#pragma once

#include <filesystem>
#include <optional>

#include "base/dtype.h"
#include "formats/safetensors.h"

namespace heddle {

/// The four bits in which a run with load_in_4bit held its base's linear layers, by the effective_config.json that it
/// left beside its adapter; nothing where there is none: adapters of other programs do not say.
std::optional<DType> four_bits_of_run(const std::filesystem::path& adapter_folder);

/// What `type`, of four bits, changes in a tensor: the sum of the squares, over its elements.
double four_bit_error(const WeightFiles& files, const StoredTensor& stored, DType type);

}  // namespace heddle
