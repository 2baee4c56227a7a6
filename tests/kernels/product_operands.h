#pragma once

// Operands for tests of the matrix product and of what is made of it.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/random.h"
#include "base/threads.h"
#include "ops/kernel.h"
#include "ops/tensor.h"

namespace heddle::test {

/// A dense tensor that owns its elements.
struct Tensor {
  Shape shape;
  DType dtype = DType::f32;
  std::vector<std::byte> bytes;

  Tensor() = default;
  Tensor(DType type, Shape extents)
      : shape(extents), dtype(type), bytes(static_cast<std::size_t>(extents.elements()) * dtype_bytes(type)) {}

  TensorView view() { return {bytes.data(), dtype, shape}; }

  /// Elements as they are stored, in double.
  std::vector<double> values() const {
    std::vector<double> result(static_cast<std::size_t>(shape.elements()));
    convert(bytes.data(), dtype, result.data(), DType::f64, shape.elements());
    return result;
  }
  void set(const std::vector<double>& values) {
    convert(values.data(), DType::f64, bytes.data(), dtype, shape.elements());
  }
};

/// Uniform in [-1, 1), rounded to the type.
inline Tensor random_tensor(DType dtype, Shape shape, std::uint64_t seed) {
  Random random(seed, 7);
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (double& value : values) value = 2.0 * random.uniform() - 1.0;
  Tensor tensor(dtype, shape);
  tensor.set(values);
  return tensor;
}

/// Whole numbers in [-4, 4]: products of them and their sums are exact in f32.
inline Tensor whole_tensor(DType dtype, Shape shape, std::uint64_t seed) {
  Random random(seed, 8);
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (double& value : values) value = static_cast<double>(random.below(9)) - 4.0;
  Tensor tensor(dtype, shape);
  tensor.set(values);
  return tensor;
}

/// Half the distance of two neighbouring numbers of the type at `value`: the error of rounding to it.
inline double rounding_error(DType dtype, double value) {
  switch (dtype) {
    case DType::bf16: return std::abs(value) * 0x1p-8;
    case DType::f16: return std::abs(value) * 0x1p-11 + 0x1p-25;
    default: return std::abs(value) * 0x1p-24;
  }
}

/// Scratch memory of the size that a run plans, or of another.
class ScratchMemory {
 public:
  explicit ScratchMemory(std::size_t shared_bytes = kSharedScratchBytes,
                         std::size_t bytes_per_thread = kScratchBytesPerThread, int threads = heddle::threads())
      : memory_(shared_bytes + static_cast<std::size_t>(threads) * bytes_per_thread + 64) {
    forget();
    std::byte* begin = memory_.data() + (64 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 64) % 64;
    scratch_ = {begin, begin + shared_bytes, shared_bytes, bytes_per_thread, threads};
  }
  const Scratch& get() const { return scratch_; }
  /// NaN everywhere, so that what is read before it is written shows.
  void forget() { std::memset(memory_.data(), 0xff, memory_.size()); }

 private:
  std::vector<std::byte> memory_;
  Scratch scratch_;
};

/// Runs a kernel with scratch memory as large as a run plans it for these operands, or up to twice that. It is kept for
/// later calls: under sanitizers new memory takes longer than the kernel.
inline void run_kernel(Kernel kernel, const std::vector<TensorView>& in, const std::vector<TensorView>& out,
                       const Attributes& attributes, const Scalars& scalars = {}) {
  std::size_t shared = std::size_t{1} << 20;
  for (const auto* operands : {&in, &out}) {
    for (const TensorView& operand : *operands) {
      if (operand.present()) shared = std::max(shared, static_cast<std::size_t>(operand.shape.elements()) * 5);
    }
  }
  shared = std::min(std::bit_ceil(shared), kSharedScratchBytes);
  static thread_local std::map<std::pair<std::size_t, int>, ScratchMemory> kept;
  ScratchMemory& scratch =
      kept.try_emplace({shared, threads()}, shared, kScratchBytesPerThread, threads()).first->second;
  scratch.forget();
  kernel(KernelCall{in, out, attributes, scalars, scratch.get()});
}

/// Sets the number of threads for the length of a scope.
class ThreadsScope {
 public:
  explicit ThreadsScope(int count) : before_(threads()) { set_threads(count); }
  ~ThreadsScope() { set_threads(before_); }
  ThreadsScope(const ThreadsScope&) = delete;
  ThreadsScope& operator=(const ThreadsScope&) = delete;

 private:
  int before_;
};

}  // namespace heddle::test
