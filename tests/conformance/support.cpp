#include "support.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <vector>

#include "../kernels/instruction_sets.h"
#include "base/threads.h"
#include "execute.h"
#include "kernels/cpu/matmul_peak.h"
#include "operation.h"

namespace heddle::conformance {
namespace {

constexpr DType kPrecisions[] = {DType::f32, DType::bf16, DType::f16};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Bytes per second of y = a + b over three arrays of 64 MiB, all threads together: best of five.
double measure_memory() {
  constexpr std::int64_t kElements = std::int64_t{1} << 24, kBlock = std::int64_t{1} << 16;
  std::vector<float> a(kElements, 1.0f), b(kElements, 2.0f), y(kElements, 0.0f);
  double best = 0.0;
  for (int repetition = 0; repetition < 5; ++repetition) {
    const double start = seconds_now();
    parallel_for(kElements / kBlock, [&](std::int64_t block, int) {
      const auto begin = static_cast<std::size_t>(block * kBlock);
      for (std::size_t i = begin; i < begin + kBlock; ++i) y[i] = a[i] + b[i];
    });
    best = std::max(best, 3.0 * sizeof(float) * kElements / (seconds_now() - start));
  }
  return best;
}

double operand_bytes(const Case& c) {
  double total = 0.0;
  const auto add = [&](const Operand& operand, double times) {
    if (operand.present) {
      total += times * static_cast<double>(storage_bytes(operand.dtype, operand.shape.elements()));
    }
  };
  for (const Operand& operand : c.in) add(operand, 1.0);
  for (const Operand& operand : c.out) {
    if (operand.compared) add(operand, operand.values.empty() ? 1.0 : 2.0);
  }
  return total;
}

}  // namespace

std::string digest_table() {
  const test::WithoutAmx without_amx;
  std::string table;
  for (const Operation& operation : operations()) {
    for (const DType precision : operation.precisions) {
      std::uint64_t digest = 0xcbf29ce484222325u;  // FNV-1a
      for (const Case& c : operation.cases({.activation = precision, .single = DType::f32})) {
        if (!has_one_result(operation, c)) continue;
        const Execution execution = execute(backends()[0].find(operation.name), c, 1);
        for (std::size_t j = 0; j < c.out.size(); ++j) {
          if (!c.out[j].present || !c.out[j].compared) continue;
          for (std::int64_t i = 0; i < c.out[j].shape.elements(); ++i) {
            const double value = execution.out[j].element(i);
            digest = (digest ^ (std::isnan(value) ? 0u : std::bit_cast<std::uint64_t>(value))) * 0x100000001b3u;
          }
        }
      }
      table += fmt::format("{:32} {:4} {:016x}\n", operation.name, safetensors_name(precision), digest);
    }
  }
  return table;
}

std::string support_table() {
  std::string table = fmt::format("{:32}", "operation");
  for (const Backend& backend : backends()) {
    for (const DType precision : kPrecisions) {
      table += fmt::format("{:>14}", fmt::format("{} {}", backend.name, safetensors_name(precision)));
    }
  }
  table += '\n';
  for (const Operation& operation : operations()) {
    table += fmt::format("{:32}", operation.name);
    for (const Backend& backend : backends()) {
      for (const DType precision : kPrecisions) {
        const bool applies = std::ranges::find(operation.precisions, precision) != operation.precisions.end();
        table += fmt::format("{:>14}", !applies ? "-" : backend.find(operation.name) != nullptr ? "yes" : "no");
      }
    }
    table += '\n';
  }
  return table;
}

void print_performance(int threads, const std::string& filter) {
  set_threads(threads);
  const double memory = measure_memory();
  const double multiply_add = cpu::measure_multiply_add_peak(0.5);
  std::printf("ceilings with %d threads: memory %.1f GB/s (y = a + b), fused multiply-add %.0f GFLOP/s\n", threads,
              memory * 1e-9, multiply_add * 1e-9);
  std::printf("%-32s%-10s%12s%12s%12s%10s\n", "operation", "type", "ms", "GB/s", "GFLOP/s", "ceiling");
  for (const Operation& operation : operations()) {
    if (operation.large == nullptr || operation.name.find(filter) == std::string_view::npos) continue;
    for (const DType precision : operation.precisions) {
      const Case c = operation.large({.activation = precision, .single = DType::f32});
      const double bytes = operation.bytes != nullptr ? operation.bytes(c) : operand_bytes(c);
      const double flops = operation.flops != nullptr ? operation.flops(c) : 0.0;
      for (const Backend& backend : backends()) {
        const Kernel kernel = backend.find(operation.name);
        if (kernel == nullptr) continue;
        const double seconds = fastest_seconds(kernel, c, threads);
        const double fraction = std::max(bytes / memory, flops / multiply_add) / seconds;
        std::printf("%-32s%-10s%12.3f%12.1f%12.1f%9.0f%%\n", std::string(operation.name).c_str(),
                    std::string(safetensors_name(precision)).c_str(), seconds * 1e3, bytes / seconds * 1e-9,
                    flops / seconds * 1e-9, fraction * 100);
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace heddle::conformance
