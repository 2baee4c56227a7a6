// Matrix products against the machine's multiply-add peak: the three products of a linear layer, in f32 and bf16.
//   bench_matmul [threads] [seconds per product]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "base/random.h"
#include "base/threads.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/matmul_peak.h"

namespace {

using namespace heddle;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

std::vector<std::byte> random_matrix(std::int64_t elements, DType dtype) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  Random random(1, static_cast<std::uint64_t>(elements));
  for (float& value : values) value = static_cast<float>(random.uniform()) - 0.5f;
  std::vector<std::byte> bytes(static_cast<std::size_t>(elements) * dtype_bytes(dtype));
  convert(values.data(), DType::f32, bytes.data(), dtype, elements);
  return bytes;
}

struct Form {
  const char* name;
  cpu::MatrixProduct product;
};

}  // namespace

int main(int argc, char** argv) {
  set_threads(argc > 1 ? std::atoi(argv[1]) : available_cores());
  const double budget = argc > 2 ? std::atof(argv[2]) : 0.3;

  const auto threads_bytes = static_cast<std::size_t>(threads()) * kScratchBytesPerThread;
  std::vector<std::byte> memory(kSharedScratchBytes + threads_bytes + 64);
  const std::size_t skip = 64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
  const Scratch scratch = {memory.data() + skip, memory.data() + skip + kSharedScratchBytes, kSharedScratchBytes,
                           kScratchBytesPerThread, threads()};

  const double peak = cpu::measure_multiply_add_peak(0.5);
  fmt::print("{} threads, multiply-add peak {:.1f} GFLOP/s\n", threads(), peak * 1e-9);
  fmt::print("{:>6} {:>6} {:>6}  {:<5} {:<10} {:>9} {:>6}  {:>6}\n", "T", "I", "O", "type", "product", "GFLOP/s",
             "peak", "GB/s");
  const std::int64_t shapes[][3] = {{1024, 768, 768}, {1024, 768, 3072}, {1024, 3072, 768},
                                    {2048, 288, 288}, {2048, 288, 768},  {2048, 768, 288},
                                    {1, 768, 3072},   {8, 768, 3072},    {1, 4096, 4096}};
  for (const auto& [tokens, inputs, outputs] : shapes) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto x = random_matrix(tokens * inputs, dtype);
      const auto weight = random_matrix(outputs * inputs, dtype);
      const auto dy = random_matrix(tokens * outputs, dtype);
      std::vector<std::byte> c(
          static_cast<std::size_t>(std::max({tokens * outputs, tokens * inputs, inputs * outputs})) * sizeof(float));
      const auto x_matrix = cpu::row_major(x.data(), dtype, inputs);
      const auto w_matrix = cpu::row_major(weight.data(), dtype, inputs);
      const auto dy_matrix = cpu::row_major(dy.data(), dtype, outputs);
      const Form forms[] = {{"x W^T",
                             {.rows = tokens,
                              .columns = outputs,
                              .depth = inputs,
                              .a = x_matrix,
                              .b = cpu::transposed(w_matrix),
                              .c = c.data(),
                              .c_dtype = dtype,
                              .c_row_stride = outputs}},
                            {"dy W",
                             {.rows = tokens,
                              .columns = inputs,
                              .depth = outputs,
                              .a = dy_matrix,
                              .b = w_matrix,
                              .c = c.data(),
                              .c_dtype = dtype,
                              .c_row_stride = inputs}},
                            {"dy^T x",
                             {.rows = outputs,
                              .columns = inputs,
                              .depth = tokens,
                              .a = cpu::transposed(dy_matrix),
                              .b = x_matrix,
                              .c = c.data(),
                              .c_dtype = DType::f32,
                              .c_row_stride = inputs,
                              .addend = c.data(),
                              .addend_row_stride = inputs}}};
      for (const Form& form : forms) {
        if (tokens < 16 && form.product.depth == tokens) continue;
        double best = 1e30;
        const auto begin = Clock::now();
        do {
          const auto start = Clock::now();
          cpu::matmul(form.product, scratch);
          best = std::min(best, seconds_since(start));
        } while (seconds_since(begin) < budget);
        const double flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(inputs * outputs);
        const double weight_bytes = static_cast<double>(inputs * outputs) * static_cast<double>(dtype_bytes(dtype));
        fmt::print("{:>6} {:>6} {:>6}  {:<5} {:<10} {:>9.1f} {:>5.1f}%  {:>6.1f}\n", tokens, inputs, outputs,
                   safetensors_name(dtype), form.name, flops / best * 1e-9, 100.0 * flops / best / peak,
                   weight_bytes / best * 1e-9);
      }
    }
  }
}
