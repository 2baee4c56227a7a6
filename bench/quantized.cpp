// Products with a quantized weight against the same products with a weight in f32, and for one row (generation) the
// bytes of the weight per second. Types take turns, round by round; each figure is the fastest round. One thread is
// timed by the processor time that it takes, so that what else runs on the machine counts little.
//   bench_quantized [threads] [rounds] [part of a type's name]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/threads.h"
#include "kernels/cpu/matmul.h"

namespace {

using namespace heddle;

constexpr DType kTypes[] = {DType::f32,        DType::bf16, DType::q4_0,      DType::q4_1,   DType::q5_0,
                            DType::q5_1,       DType::q8_0, DType::q2_k,      DType::q3_k,   DType::q4_k,
                            DType::q5_k,       DType::q6_k, DType::iq4_nl,    DType::iq4_xs, DType::nf4,
                            DType::nf4_double, DType::fp4,  DType::fp4_double};

struct Shape2 {
  std::int64_t tokens, inputs, outputs;
};

/// Random bytes: what they mean does not matter to the time. Those of f32 and bf16 are finite.
std::vector<std::byte> random_weight(DType type, std::int64_t elements) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(storage_bytes(type, elements)));
  Random random(1, static_cast<std::uint64_t>(type));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256) & 0xbf);
  return bytes;
}

struct Weight {
  DType type;
  std::vector<std::byte> bytes;
  double forward = 1e30, backward = 1e30;  // seconds
};

double now() {
  if (threads() == 1) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double seconds_of(const cpu::MatrixProduct& product, const Scratch& scratch) {
  const double begin = now();
  cpu::matmul(product, scratch);
  return now() - begin;
}

void measure(const Shape2& s, int rounds, std::vector<Weight>& weights, const Scratch& scratch) {
  const std::vector<float> x(static_cast<std::size_t>(s.tokens * s.inputs), 0.5f);
  const std::vector<float> dy(static_cast<std::size_t>(s.tokens * s.outputs), 0.5f);
  std::vector<float> c(static_cast<std::size_t>(s.tokens * std::max(s.inputs, s.outputs)));
  for (int round = 0; round < rounds; ++round) {
    for (Weight& weight : weights) {
      const TensorView view = {weight.bytes.data(), weight.type, {s.outputs, s.inputs}};
      const cpu::MatrixOperand w = cpu::row_major(view);
      const auto x_rows = cpu::row_major(x.data(), DType::f32, s.inputs);
      const auto forward = cpu::dense_product(s.tokens, s.outputs, s.inputs, x_rows, cpu::transposed(w), c.data());
      weight.forward = std::min(weight.forward, seconds_of(forward, scratch));
      if (s.tokens == 1) continue;
      const auto dy_rows = cpu::row_major(dy.data(), DType::f32, s.outputs);
      const auto backward = cpu::dense_product(s.tokens, s.inputs, s.outputs, dy_rows, w, c.data());
      weight.backward = std::min(weight.backward, seconds_of(backward, scratch));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  set_threads(argc > 1 ? std::atoi(argv[1]) : available_cores());
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 20;
  const std::string filter = argc > 3 ? argv[3] : "";

  const auto threads_bytes = static_cast<std::size_t>(threads()) * kScratchBytesPerThread;
  std::vector<std::byte> memory(kSharedScratchBytes + threads_bytes + 64);
  const std::size_t skip = 64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64;
  const Scratch scratch = {memory.data() + skip, memory.data() + skip + kSharedScratchBytes, kSharedScratchBytes,
                           kScratchBytesPerThread, threads()};

  fmt::print("{} threads, {} rounds\n{:>6} {:>6} {:>6}  {:<10} {:>16} {:>8} {:>16} {:>8}\n", threads(), rounds, "T",
             "I", "O", "weight", "x W^T, GFLOP/s", "of f32", "dy W, GFLOP/s", "of f32");
  for (const Shape2& s : {Shape2{512, 768, 768},
                          {512, 768, 1536},
                          {512, 1536, 768},
                          {64, 768, 1536},
                          {1, 4096, 4096},
                          {1, 2048, 49152}}) {
    std::vector<Weight> weights;
    for (const DType type : kTypes) {
      if (type == DType::f32 || std::string(torch_name(type)).find(filter) != std::string::npos) {
        weights.push_back({type, random_weight(type, s.inputs * s.outputs)});
      }
    }
    measure(s, rounds, weights, scratch);
    const double flops = 2.0 * static_cast<double>(s.tokens * s.inputs) * static_cast<double>(s.outputs);
    for (const Weight& weight : weights) {
      fmt::print("{:>6} {:>6} {:>6}  {:<10} ", s.tokens, s.inputs, s.outputs, torch_name(weight.type));
      const double speed = weights[0].forward / weight.forward;
      if (s.tokens == 1) {
        fmt::print("{:>11.1f} GB/s {:>7.2f}x\n", static_cast<double>(weight.bytes.size()) / weight.forward * 1e-9,
                   speed);
      } else {
        fmt::print("{:>16.1f} {:>7.2f}x {:>16.1f} {:>7.2f}x\n", flops / weight.forward * 1e-9, speed,
                   flops / weight.backward * 1e-9, weights[0].backward / weight.backward);
      }
    }
  }
}
