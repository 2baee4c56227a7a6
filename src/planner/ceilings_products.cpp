// Products by the engine's own matmul, on shapes of the models that people know.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>

#include "base/threads.h"
#include "kernels/cpu/matmul.h"
#include "planner/ceilings.h"
#include "tiers/arena.h"

namespace heddle {
namespace {

using Clock = std::chrono::steady_clock;

/// GPT-2 124M on 1,024 positions, and a Llama of hidden size 288 on 2,048; the widest are their heads.
constexpr std::array<std::array<std::int64_t, 3>, 7> kShapes = {{{1024, 768, 768},
                                                                 {1024, 768, 3072},
                                                                 {1024, 3072, 768},
                                                                 {1024, 768, 50257},
                                                                 {2048, 288, 288},
                                                                 {2048, 288, 768},
                                                                 {2048, 288, 32000}}};

/// FLOP/s of the best of at least two calls, the first of which does not count, in about 0.05 s; of that first one
/// where it alone takes as long: nothing is cold in most of it.
double best_rate(const cpu::MatrixProduct& product, const Scratch& scratch) {
  constexpr double kSeconds = 0.05, kLong = 0.1;
  const double flops = 2.0 * static_cast<double>(product.rows * product.columns) * static_cast<double>(product.depth);
  const auto seconds_of_call = [&] {
    const auto start = Clock::now();
    cpu::matmul(product, scratch);
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  if (const double first = seconds_of_call(); first > kLong) return flops / first;
  double best = 0;
  const auto begin = Clock::now();
  do {
    best = std::max(best, flops / seconds_of_call());
  } while (std::chrono::duration<double>(Clock::now() - begin).count() < kSeconds);
  return best;
}

/// Bytes of an operand, up to where the next may begin.
std::size_t bytes_of(DType type, std::int64_t elements) {
  return (static_cast<std::size_t>(elements) * dtype_bytes(type) + 63) / 64 * 64;
}

/// Bytes of x, W, y and dW of a shape.
std::size_t operand_bytes(DType dtype, std::int64_t rows, std::int64_t inputs, std::int64_t outputs) {
  return bytes_of(dtype, rows * inputs) + bytes_of(dtype, outputs * inputs) + bytes_of(dtype, rows * outputs) +
         bytes_of(DType::f32, outputs * inputs);
}

/// Fills in the rates of a shape. `memory` holds its operands.
ProductCeiling measure_product(ProductCeiling entry, std::byte* memory, const Scratch& scratch) {
  const std::int64_t rows = entry.rows, inputs = entry.inputs, outputs = entry.outputs;
  const DType dtype = entry.dtype;
  std::byte* x = memory;
  std::byte* weight = x + bytes_of(dtype, rows * inputs);
  std::byte* y = weight + bytes_of(dtype, outputs * inputs);
  std::byte* gradient = y + bytes_of(dtype, rows * outputs);
  const auto x_rows = cpu::row_major(x, dtype, inputs), w_rows = cpu::row_major(weight, dtype, inputs),
             y_rows = cpu::row_major(y, dtype, outputs);
  entry.forward =
      best_rate(cpu::dense_product(rows, outputs, inputs, x_rows, cpu::transposed(w_rows), y, dtype), scratch);
  entry.dinput = best_rate(cpu::dense_product(rows, inputs, outputs, y_rows, w_rows, x, dtype), scratch);
  entry.dweight =
      best_rate(cpu::dense_product(outputs, inputs, rows, cpu::transposed(y_rows), x_rows, gradient), scratch);
  return entry;
}

}  // namespace

std::vector<ProductCeiling> measure_products() {
  const auto count = threads();
  const std::size_t scratch_bytes = kSharedScratchBytes + static_cast<std::size_t>(count) * kScratchBytesPerThread;
  const Arena scratch_arena(scratch_bytes, "scratch of heddle bench");
  Scratch scratch;
  scratch.shared = scratch_arena.data();
  scratch.per_thread = scratch_arena.data() + kSharedScratchBytes;
  scratch.shared_bytes = kSharedScratchBytes;
  scratch.bytes_per_thread = kScratchBytesPerThread;
  scratch.threads = count;
  std::size_t bytes = 0;
  for (const auto& [rows, inputs, outputs] : kShapes)
    bytes = std::max(bytes, operand_bytes(DType::f32, rows, inputs, outputs));
  const Arena operands(bytes, "operands of heddle bench");
  std::memset(operands.data(), 0, bytes);  // zeros, which all products of them are, run as fast as other numbers
  std::vector<ProductCeiling> products;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const auto& [rows, inputs, outputs] : kShapes) {
      products.push_back(measure_product({dtype, rows, inputs, outputs}, operands.data(), scratch));
    }
  }
  return products;
}

}  // namespace heddle
