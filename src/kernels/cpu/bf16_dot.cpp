#include "kernels/cpu/bf16_dot.h"

#include <atomic>

#if HEDDLE_ARM_BF16_DOT
#include <sys/auxv.h>
#endif

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
#elif HEDDLE_ARM_BF16_DOT
  static const bool has = (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
  return has;
#else
  return false;
#endif
}

}  // namespace

bool uses_bf16_dot() { return has_bf16_dot() && is_allowed().load(std::memory_order_relaxed); }

void allow_bf16_dot(bool allowed) { is_allowed().store(allowed, std::memory_order_relaxed); }

PairSum bf16_pair_sum() { return HEDDLE_ARM_BF16_DOT != 0 && uses_bf16_dot() ? PairSum::to_odd : PairSum::one_by_one; }

}  // namespace heddle::cpu
