#pragma once

#include <cstdint>
#include <functional>

#include "kernels/cpu/targets.h"
// After targets.h, which says what kernels are compiled for.
#include <hwy/highway.h>

namespace heddle::test {

/// Calls body(name) once with each instruction set that this processor has and kernels are compiled for.
inline void with_each_instruction_set(const std::function<void(const char*)>& body) {
  const std::int64_t compiled = HWY_TARGETS & hwy::SupportedTargets();
  std::int64_t allowed = compiled;
  for (std::int64_t bit = 1; bit > 0 && bit <= HWY_SCALAR; bit <<= 1) {
    if ((compiled & bit) == 0) continue;
    hwy::GetChosenTarget().Update(allowed);  // a smaller bit is a better set, and taken first
    body(hwy::TargetName(bit));
    allowed &= ~bit;
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace heddle::test
