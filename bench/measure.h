#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <vector>

#include "base/dtype.h"
#include "base/random.h"
#include "base/threads.h"
#include "kernels/cpu/matmul.h"
#include "ops/kernel.h"

/// What the benchmarks of kernels share: operands, scratch, time and resident memory.
namespace heddle::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Processor time of all threads: what a busy machine leaves comparable, with one thread.
inline double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Seconds {
  double wall, processor;
};

template <typename Function>
Seconds seconds_of(const Function& f) {
  const auto begin = Clock::now();
  const double processor = processor_seconds();
  f();
  return {seconds_since(begin), processor_seconds() - processor};
}

/// The shortest call of at least two, and of more until `budget` seconds are spent.
template <typename Function>
Seconds least_seconds(double budget, const Function& f) {
  Seconds least = seconds_of(f);
  const auto begin = Clock::now();
  do {
    const Seconds next = seconds_of(f);
    least = {std::min(least.wall, next.wall), std::min(least.processor, next.processor)};
  } while (seconds_since(begin) < budget);
  return least;
}

/// The process's greatest resident size so far.
inline std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

/// A tensor of random values in [-0.5, 0.5).
class Tensor {
 public:
  explicit Tensor(Shape shape, DType dtype = DType::f32)
      : bytes_(static_cast<std::size_t>(shape.elements()) * dtype_bytes(dtype)), view_{bytes_.data(), dtype, shape} {
    constexpr std::int64_t kPiece = 4096;  // so that filling adds nothing to the peak
    float values[kPiece];
    Random random(1, static_cast<std::uint64_t>(shape.elements()));
    for (std::int64_t i = 0; i < shape.elements(); i += kPiece) {
      const std::int64_t count = std::min(kPiece, shape.elements() - i);
      for (std::int64_t j = 0; j < count; ++j) values[j] = static_cast<float>(random.uniform()) - 0.5f;
      convert(values, DType::f32, bytes_.data() + static_cast<std::size_t>(i) * dtype_bytes(dtype), dtype, count);
    }
  }
  const TensorView& view() const { return view_; }
  float* floats() const { return view_.as<float>(); }

 private:
  std::vector<std::byte> bytes_;
  TensorView view_;
};

/// Scratch for threads() threads, as a run has it.
class OwnedScratch {
 public:
  OwnedScratch()
      : memory_(kSharedScratchBytes + static_cast<std::size_t>(threads()) * kScratchBytesPerThread + kAlignment) {
    const std::size_t skip = kAlignment - reinterpret_cast<std::uintptr_t>(memory_.data()) % kAlignment;
    std::byte* const begin = memory_.data() + skip;
    scratch_ = {begin, begin + kSharedScratchBytes, kSharedScratchBytes, kScratchBytesPerThread, threads()};
  }
  const Scratch& get() const { return scratch_; }

 private:
  static constexpr std::size_t kAlignment = 64;
  std::vector<std::byte> memory_;
  Scratch scratch_;
};

/// The best time of an f32 product of matrices with about a thousand rows and columns, and its FLOPs.
struct ProductTime {
  double flops;
  Seconds seconds;
};
inline ProductTime measure_product(double budget, const Scratch& scratch) {
  constexpr std::int64_t kRows = 1024, kColumns = 1152, kDepth = 768;
  const Tensor a({kRows, kDepth}), b({kDepth, kColumns}), c({kRows, kColumns});
  const cpu::MatrixProduct product =
      cpu::dense_product(kRows, kColumns, kDepth, cpu::row_major(a.view()), cpu::row_major(b.view()), c.floats());
  return {2.0 * kRows * kColumns * kDepth, least_seconds(budget, [&] { cpu::matmul(product, scratch); })};
}

}  // namespace heddle::bench
