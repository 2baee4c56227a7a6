#pragma once

#include <cstdint>

#include "base/dtype.h"

namespace heddle {

/// convert() on all threads.
void convert_parallel(const void* source, DType source_type, void* target, DType target_type, std::int64_t count);

}  // namespace heddle
