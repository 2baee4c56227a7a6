#pragma once

#include <cstdint>
#include <functional>

#include "kernels/cpu/bf16_dot.h"
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

/// The same for what is made of matrix products: first with the processor's instruction for bf16, if it has one, then
/// each instruction set without it.
inline void with_each_way_to_multiply(const std::function<void(const char*)>& body) {
  if (cpu::uses_bf16_dot()) body("bf16 dot");
  struct Disallowed {
    Disallowed() { cpu::allow_bf16_dot(false); }
    ~Disallowed() { cpu::allow_bf16_dot(true); }
  } const disallowed;
  with_each_instruction_set(body);
}

}  // namespace heddle::test
