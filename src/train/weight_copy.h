#pragma once

#include <cstdint>

#include "formats/open_file.h"
#include "formats/safetensors.h"
#include "train/weight_layout.h"

namespace heddle {

/// Writes the elements [begin, end) of a stored tensor to their place in a file: its bytes where the types agree, else
/// decoded to fp32 and rounded. Holds a piece in memory, whatever the tensor's size.
void copy_elements(const WeightFiles& files, const StoredTensor& stored, std::int64_t begin, std::int64_t end,
                   const OpenFile& target, const PlacedTensor& placed);

}  // namespace heddle
