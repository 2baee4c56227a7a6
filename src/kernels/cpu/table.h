#pragma once

#include <string_view>

#include "ops/kernel.h"

namespace heddle::cpu {

/// The CPU kernel of an operation, or null where there is none.
Kernel find_kernel(std::string_view operation);

}  // namespace heddle::cpu
