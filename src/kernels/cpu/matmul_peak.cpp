// The machine's ceiling for matrix products: multiply-adds on registers, enough of them independent to hide their
// latency.
#include "kernels/cpu/matmul_peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/threads.h"

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_peak.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include "kernels/cpu/amx_registers.h"
#include "kernels/cpu/bf16_dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace {

constexpr int kSums = 12;  // two pipes with a latency of four or five, within 16 registers

}  // namespace

/// FLOPs of `steps` steps. The result is kept, so that the loop is not optimised away.
double multiply_adds(std::int64_t steps, float* kept) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> sum[kSums];
  HWY_UNROLL(16)
  for (int i = 0; i < kSums; ++i) sum[i] = hn::Set(d, static_cast<float>(i));
  const auto factor = hn::Set(d, 0.999f);
  const auto term = hn::Set(d, 0.5f);
  for (std::int64_t step = 0; step < steps; ++step) {
    HWY_UNROLL(16)
    for (int i = 0; i < kSums; ++i) sum[i] = hn::MulAdd(sum[i], factor, term);
  }
  HWY_UNROLL(16)
  for (int i = 1; i < kSums; ++i) sum[0] = hn::Add(sum[0], sum[i]);
  *kept = hn::GetLane(sum[0]);
  return 2.0 * kSums * static_cast<double>(hn::Lanes(d)) * static_cast<double>(steps);
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HEDDLE_HAS_BF16_DOT
HEDDLE_BF16_DOT_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

double bf16_dots(std::int64_t steps, float* kept) {
  const FloatTag d;
  FloatVector sum[kSums];
  HWY_UNROLL(16)
  for (int i = 0; i < kSums; ++i) sum[i] = hn::Set(d, static_cast<float>(i));
  volatile std::uint32_t halves = 0x3f003f00u;  // g++ 12 for Arm would write a constant of bf16 as one of f16
  const auto pairs = hn::BitCast(d, hn::Set(WordTag(), halves));
  for (std::int64_t step = 0; step < steps; ++step) {
    HWY_UNROLL(16)
    for (int i = 0; i < kSums; ++i) sum[i] = add_words(pairs, pairs, sum[i]);
  }
  HWY_UNROLL(16)
  for (int i = 1; i < kSums; ++i) sum[0] = hn::Add(sum[0], sum[i]);
  *kept = hn::GetLane(sum[0]);
  return 2.0 * kDotDepth * kSums * static_cast<double>(hn::Lanes(d)) * static_cast<double>(steps);
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {

#if HEDDLE_AMX
/// Four sums, as a product has: each waits for its own.
inline double amx_products(std::int64_t steps, float* kept) {
  AmxConfig config;
  for (int tile = 0; tile < 6; ++tile) config.set(tile, kAmxRows, kAmxRowBytes);
  const AmxScope<AmxRegisters> scope(config);
  AmxRegisters::zero<0>();
  AmxRegisters::zero<1>();
  AmxRegisters::zero<2>();
  AmxRegisters::zero<3>();
  AmxRegisters::zero<4>();
  AmxRegisters::zero<5>();
  for (std::int64_t step = 0; step < steps; ++step) {
    AmxRegisters::multiply<0, 4, 5>();
    AmxRegisters::multiply<1, 4, 5>();
    AmxRegisters::multiply<2, 4, 5>();
    AmxRegisters::multiply<3, 4, 5>();
  }
  float sums[kAmxRows][kAmxColumns];
  AmxRegisters::store<0>(sums, kAmxRowBytes);
  *kept = sums[0][0];
  return 2.0 * 4 * static_cast<double>(kAmxRows * kAmxColumns * kAmxDepth) * static_cast<double>(steps);
}
#endif

/// FLOPs of `steps` steps of products of bf16.
double bf16_multiply_adds(std::int64_t steps, float* kept) {
#if HEDDLE_AMX
  if (amx_tiles() == AmxTiles::processor) return amx_products(steps / 16, kept);  // each takes longer by as much
#endif
#if HEDDLE_HAS_BF16_DOT
  if (uses_bf16_dot()) return bf16_dots(steps, kept);
#endif
  return multiply_adds(steps, kept);
}

}  // namespace heddle::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle::cpu {

HWY_EXPORT(multiply_adds);
HWY_EXPORT(bf16_multiply_adds);
namespace {

/// Best rate of measure(steps, &kept) on all threads.
template <typename Measure>
double best_rate(double seconds, const Measure& measure) {
  constexpr std::int64_t kSteps = 1'000'000;  // about 2 ms
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  std::atomic<float> sink = 0.0f;
  double best = 0.0;
  const auto begin = Clock::now();
  do {
    double flops = 0.0;
    const auto start = Clock::now();
    parallel_for(threads(), [&](std::int64_t index, int) {
      float kept = 0.0f;
      const double done = measure(kSteps, &kept);
      sink.store(kept, std::memory_order_relaxed);
      if (index == 0) flops = done;
    });
    best = std::max(best, flops * threads() / since(start));
  } while (since(begin) < seconds);
  return best;
}

}  // namespace

double measure_multiply_add_peak(double seconds) { return best_rate(seconds, HWY_DYNAMIC_DISPATCH(multiply_adds)); }

double measure_bf16_peak(double seconds) { return best_rate(seconds, HWY_DYNAMIC_DISPATCH(bf16_multiply_adds)); }

}  // namespace heddle::cpu
#endif
