#pragma once

#include <cstdint>
#include <functional>

#include "kernels/cpu/amx.h"
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

/// Products without AMX, whose sums are of other bits, for the length of a scope.
struct WithoutAmx {
  WithoutAmx() { cpu::use_amx_tiles(cpu::AmxTiles::none); }
  ~WithoutAmx() { cpu::use_amx_tiles(cpu::has_amx() ? cpu::AmxTiles::processor : cpu::AmxTiles::none); }
  WithoutAmx(const WithoutAmx&) = delete;
  WithoutAmx& operator=(const WithoutAmx&) = delete;
};

/// Calls body(name) with AMX, if this processor has it, and emulated where operands can be packed for it.
inline void with_each_kind_of_amx_tiles(const std::function<void(const char*)>& body) {
  const struct AsAtFirst {
    ~AsAtFirst() { cpu::use_amx_tiles(cpu::has_amx() ? cpu::AmxTiles::processor : cpu::AmxTiles::none); }
  } as_at_first;
  if (cpu::has_amx()) body("AMX");
  cpu::use_amx_tiles(cpu::AmxTiles::emulated);
  if (cpu::amx_tiles() == cpu::AmxTiles::emulated) body("emulated AMX");
}

/// The same as with each instruction set for what is made of matrix products: first with the processor's instructions
/// for bf16, if it has some, then each instruction set without them.
inline void with_each_way_to_multiply(const std::function<void(const char*)>& body) {
  with_each_kind_of_amx_tiles(body);
  const WithoutAmx without_amx;
  if (cpu::uses_bf16_dot()) body("bf16 dot");
  struct Disallowed {
    Disallowed() { cpu::allow_bf16_dot(false); }
    ~Disallowed() { cpu::allow_bf16_dot(true); }
  } const disallowed;
  with_each_instruction_set(body);
}

}  // namespace heddle::test
