// Multiply-adds and streams of memory by some threads: loops that do nothing but move, on arrays that no cache holds.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "planner/ceilings.h"

// Scalable vectors cannot stand in arrays; processors with SVE have NEON too.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "planner/ceilings_streams.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using Tag = hn::ScalableTag<float>;

/// f(i) for each vector of [0, n); n is a multiple of four vectors.
template <typename Function>
HWY_INLINE void by_vectors(std::size_t n, const Function& f) {
  const std::size_t lanes = hn::Lanes(Tag());
  for (std::size_t i = 0; i < n; i += 4 * lanes) {
    f(i);
    f(i + lanes);
    f(i + 2 * lanes);
    f(i + 3 * lanes);
  }
}

}  // namespace

// Each on n floats of four arrays a; `kept` is where the sum goes, so that the loop is not optimised away.

void stream_read(float* const* a, std::size_t n, float* kept) {
  const Tag d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<Tag> sums[8];
  for (auto& sum : sums) sum = hn::Zero(d);
  for (std::size_t i = 0; i < n; i += 8 * lanes) {
    HWY_UNROLL(8)
    for (std::size_t j = 0; j < 8; ++j) sums[j] = hn::Add(sums[j], hn::Load(d, a[0] + i + j * lanes));
  }
  HWY_UNROLL(8)
  for (std::size_t j = 1; j < 8; ++j) sums[0] = hn::Add(sums[0], sums[j]);
  *kept = hn::GetLane(hn::SumOfLanes(d, sums[0]));
}

void stream_write(float* const* a, std::size_t n, float*) {
  const auto value = hn::Set(Tag(), 0.5f);
  by_vectors(n, [&](std::size_t i) { hn::Store(value, Tag(), a[0] + i); });
}

void stream_copy(float* const* a, std::size_t n, float*) {
  by_vectors(n, [&](std::size_t i) { hn::Store(hn::Load(Tag(), a[1] + i), Tag(), a[0] + i); });
}

void stream_triad(float* const* a, std::size_t n, float*) {
  const auto factor = hn::Set(Tag(), 0.5f);
  by_vectors(n, [&](std::size_t i) {
    hn::Store(hn::MulAdd(factor, hn::Load(Tag(), a[2] + i), hn::Load(Tag(), a[1] + i)), Tag(), a[0] + i);
  });
}

void stream_update(float* const* a, std::size_t n, float*) {
  const auto factor = hn::Set(Tag(), 0.5f);
  by_vectors(n, [&](std::size_t i) { hn::Store(hn::Mul(factor, hn::Load(Tag(), a[0] + i)), Tag(), a[0] + i); });
}

/// AdamW's seven streams, with little arithmetic.
void stream_adamw(float* const* a, std::size_t n, float*) {
  const auto factor = hn::Set(Tag(), 0.5f);
  by_vectors(n, [&](std::size_t i) {
    const Tag d;
    const auto g = hn::Load(d, a[1] + i);
    const auto m = hn::MulAdd(factor, hn::Load(d, a[2] + i), g);
    const auto v = hn::MulAdd(factor, hn::Load(d, a[3] + i), hn::Mul(g, g));
    hn::Store(m, d, a[2] + i);
    hn::Store(v, d, a[3] + i);
    hn::Store(hn::MulAdd(m, v, hn::Load(d, a[0] + i)), d, a[0] + i);
  });
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "base/threads.h"
#include "kernels/cpu/matmul_peak.h"
#include "tiers/arena.h"
#include "tiers/available_memory.h"

namespace heddle {

HWY_EXPORT(stream_read);
HWY_EXPORT(stream_write);
HWY_EXPORT(stream_copy);
HWY_EXPORT(stream_triad);
HWY_EXPORT(stream_update);
HWY_EXPORT(stream_adamw);

namespace {

using Clock = std::chrono::steady_clock;
using Stream = void (*)(float* const*, std::size_t, float*);

constexpr std::size_t kArrays = 4;
constexpr std::size_t kChunk = std::size_t{1} << 16;  // floats of one index of parallel_for

/// Bytes of each array: four times the last cache, since cores may have one each while the system counts one; a quarter
/// of the free memory for all of them at most.
std::size_t array_bytes() {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const std::size_t wanted = std::max(std::size_t{64} << 20, 4 * static_cast<std::size_t>(std::max(0L, cache)));
  const std::size_t bytes = std::min(wanted, available_memory() / 4 / kArrays);
  return std::max<std::size_t>(1, bytes / (kChunk * sizeof(float))) * kChunk * sizeof(float);
}

/// Once over the first arrays of an arena of kArrays.
void pass_over(Stream stream, const std::array<float*, kArrays>& arrays, std::size_t bytes) {
  const auto chunks = static_cast<std::int64_t>(bytes / sizeof(float) / kChunk);
  std::array<float, 16> sink{};
  parallel_for(chunks, [&](std::int64_t chunk, int) {
    std::array<float*, kArrays> parts = arrays;
    for (auto& part : parts) part += static_cast<std::size_t>(chunk) * kChunk;
    float kept = 0;
    stream(parts.data(), kChunk, &kept);
    if (chunk < static_cast<std::int64_t>(sink.size())) sink[static_cast<std::size_t>(chunk)] = kept;
  });
}

/// Bytes per second of the best pass over the arrays within about `seconds`.
double best_rate(Stream stream, int streams, const Arena& arena, std::size_t bytes, double seconds) {
  std::array<float*, kArrays> arrays{};
  for (std::size_t i = 0; i < kArrays; ++i) arrays[i] = reinterpret_cast<float*>(arena.data() + i * bytes);
  double best = 0;
  const auto begin = Clock::now();
  do {
    const auto start = Clock::now();
    pass_over(stream, arrays, bytes);
    const double taken = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::max(best, static_cast<double>(bytes) * streams / taken);
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds);
  return best;
}

/// parallel_for on other threads than before, for a while.
class ThreadsForAWhile {
 public:
  explicit ThreadsForAWhile(int count) : before_(threads()) { set_threads(count); }
  ~ThreadsForAWhile() { set_threads(before_); }
  ThreadsForAWhile(const ThreadsForAWhile&) = delete;
  ThreadsForAWhile& operator=(const ThreadsForAWhile&) = delete;

 private:
  int before_;
};

}  // namespace

ThreadCeilings measure_threads(int threads, double seconds_each) {
  const ThreadsForAWhile now(threads);
  ThreadCeilings ceilings;
  ceilings.threads = threads;
  ceilings.flops = cpu::measure_multiply_add_peak(seconds_each);
  ceilings.bf16_flops = cpu::measure_bf16_peak(seconds_each);
  const std::size_t bytes = array_bytes();
  const Arena arena(kArrays * bytes, "streams of heddle bench");
  best_rate(HWY_DYNAMIC_DISPATCH(stream_adamw), 7, arena, bytes, 0);  // touches every page
  ceilings.read = best_rate(HWY_DYNAMIC_DISPATCH(stream_read), 1, arena, bytes, seconds_each);
  ceilings.write = best_rate(HWY_DYNAMIC_DISPATCH(stream_write), 1, arena, bytes, seconds_each);
  ceilings.copy = best_rate(HWY_DYNAMIC_DISPATCH(stream_copy), 2, arena, bytes, seconds_each);
  ceilings.triad = best_rate(HWY_DYNAMIC_DISPATCH(stream_triad), 3, arena, bytes, seconds_each);
  ceilings.update = best_rate(HWY_DYNAMIC_DISPATCH(stream_update), 2, arena, bytes, seconds_each);
  ceilings.adamw = best_rate(HWY_DYNAMIC_DISPATCH(stream_adamw), 7, arena, bytes, seconds_each);
  return ceilings;
}

StreamingRead::StreamingRead() : arena_(array_bytes(), "a streaming read") {
  std::memset(arena_.data(), 0, arena_.bytes());
}

void StreamingRead::pass() const {
  auto* const array = reinterpret_cast<float*>(arena_.data());
  pass_over(HWY_DYNAMIC_DISPATCH(stream_read), {array, array, array, array}, arena_.bytes());
}

}  // namespace heddle
#endif
