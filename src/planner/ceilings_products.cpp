// Products by the engine's own matmul, on shapes of the models that people know.
#include <algorithm>
#include <array>
#include <chrono>
#include <span>

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

/// FLOP/s of the best of at least two calls, the first of which does not count, in about 0.1 s; of that first one where
/// it alone takes long: nothing is cold in most of it.
double best_rate(const cpu::MatrixProduct& product, const Scratch& scratch) {
  constexpr double kSeconds = 0.1, kLong = 0.4;
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
  std::vector<ProductCeiling> products;
  for (const auto& [rows, inputs, outputs] : kShapes) {
    const Arena arena(sizeof(float) * static_cast<std::size_t>(rows * inputs + outputs * inputs + rows * outputs),
                      "operands of heddle bench");
    auto* x = reinterpret_cast<float*>(arena.data());
    float* weight = x + rows * inputs;
    float* y = weight + outputs * inputs;
    std::fill(x, y + rows * outputs, 0.0f);  // zeros run as fast as other numbers, and every page is there
    const auto x_rows = cpu::row_major(x, DType::f32, inputs), w_rows = cpu::row_major(weight, DType::f32, inputs),
               y_rows = cpu::row_major(y, DType::f32, outputs);
    const auto product = [](std::int64_t m, std::int64_t n, std::int64_t k, const cpu::MatrixOperand& a,
                            const cpu::MatrixOperand& b, float* c) {
      cpu::MatrixProduct p;
      p.rows = m;
      p.columns = n;
      p.depth = k;
      p.a = a;
      p.b = b;
      p.c = c;
      p.c_row_stride = n;
      return p;
    };
    ProductCeiling& entry = products.emplace_back(ProductCeiling{rows, inputs, outputs});
    entry.forward = best_rate(product(rows, outputs, inputs, x_rows, cpu::transposed(w_rows), y), scratch);
    entry.dinput = best_rate(product(rows, inputs, outputs, y_rows, w_rows, x), scratch);
    entry.dweight = best_rate(product(outputs, inputs, rows, cpu::transposed(y_rows), x_rows, weight), scratch);
  }
  return products;
}

}  // namespace heddle
