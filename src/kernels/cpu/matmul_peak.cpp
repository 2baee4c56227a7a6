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
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace heddle::cpu::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

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

#if HWY_ONCE
namespace heddle::cpu {

HWY_EXPORT(multiply_adds);

double measure_multiply_add_peak(double seconds) {
  constexpr std::int64_t kSteps = 1'000'000;  // about 2 ms
  const auto measure = HWY_DYNAMIC_DISPATCH(multiply_adds);
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

}  // namespace heddle::cpu
#endif
