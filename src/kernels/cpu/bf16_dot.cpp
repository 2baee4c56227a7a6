#include "kernels/cpu/bf16_dot.h"

#include <atomic>

namespace heddle::cpu {
namespace {

std::atomic<bool>& is_allowed() {
  static std::atomic<bool> allowed = true;
  return allowed;
}

bool has_bf16_dot() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return has;
#else
  return false;
#endif
}

}  // namespace

bool uses_bf16_dot() { return has_bf16_dot() && is_allowed().load(std::memory_order_relaxed); }

void allow_bf16_dot(bool allowed) { is_allowed().store(allowed, std::memory_order_relaxed); }

}  // namespace heddle::cpu
