// The AdamW kernel over many values, and the memory bandwidth with the same streams.
//   bench_adamw [millions of values] [seconds per figure] [threads]
// Prints `result NAME MILLISECONDS BYTES` a line, of the best call; bench/cpu_adam.py sets them beside other programs.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <span>
#include <string>

#include "base/threads.h"
#include "kernels/cpu/kernels.h"
#include "tiers/arena.h"

namespace {

using namespace heddle;
using Clock = std::chrono::steady_clock;

template <typename Call>
void measure(const std::string& name, double bytes, double seconds, const Call& call) {
  call();
  double best = 1e30, total = 0;
  for (int tries = 0; total < seconds || tries < 5; ++tries) {
    const auto start = Clock::now();
    call();
    const double took = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, took);
    total += took;
  }
  fmt::print("result {} {:.2f} {:.0f}\n", name, best * 1e3, bytes);
}

/// Values of one kind, all of a value, so that every page is there.
TensorView filled(const Arena& arena, DType type, std::int64_t count, float value) {
  if (type == DType::f32) {
    std::fill_n(reinterpret_cast<float*>(arena.data()), count, value);
  } else {
    std::fill_n(reinterpret_cast<BFloat16*>(arena.data()), count, BFloat16(value));
  }
  return {arena.data(), type, {count}};
}

/// Reads four streams and writes three of them back, as AdamW does, with as little arithmetic as there can be.
/// Whole vectors of four values: at one value at a time a core does not keep up with its memory.
void stream(std::int64_t count, const float* gradient, float* weight, float* mean, float* variance) {
  using Vector = float __attribute__((vector_size(16), may_alias));
  constexpr std::int64_t kBlock = std::int64_t{1} << 12;
  const auto vectors = [](auto* values) { return reinterpret_cast<Vector*>(values); };
  const auto* g = reinterpret_cast<const Vector*>(gradient);
  Vector *w = vectors(weight), *m = vectors(mean), *v = vectors(variance);
  count /= 4;
  parallel_for((count + kBlock - 1) / kBlock, [&](std::int64_t block, int) {
    for (std::int64_t i = block * kBlock; i < std::min(count, (block + 1) * kBlock); ++i) {
      w[i] += g[i];
      m[i] += g[i];
      v[i] += g[i];
    }
  });
}

/// The kernel with all in fp32, with the weights in bf16 too, and with gradients in bf16 besides.
void run(std::int64_t count, double seconds) {
  const auto values = static_cast<double>(count);
  const auto bytes = static_cast<std::size_t>(count) * 4;
  const Arena g_memory(bytes, "g"), w_memory(bytes, "w"), m_memory(bytes, "m"), v_memory(bytes, "v"),
      copy_memory(bytes / 2, "copy"), half_memory(bytes / 2, "g in bf16");
  TensorView g = filled(g_memory, DType::f32, count, 0.5f), w = filled(w_memory, DType::f32, count, 1.0f),
             m = filled(m_memory, DType::f32, count, 0.0f), v = filled(v_memory, DType::f32, count, 0.1f),
             copy = filled(copy_memory, DType::bf16, count, 1.0f), half = filled(half_memory, DType::bf16, count, 0.5f);
  measure("streams", 28 * values, seconds,
          [&] { stream(count, g.as<float>(), w.as<float>(), m.as<float>(), v.as<float>()); });
  float one = 1.0f;
  const TensorView factor{reinterpret_cast<std::byte*>(&one), DType::f32, {1}};
  const Attributes attributes = {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.01}};
  Scalars scalars;
  scalars.learning_rate = 1e-4;
  scalars.bias_correction1 = 0.5;
  scalars.bias_correction2 = 0.5;
  const auto step = [&](const TensorView& gradient, const TensorView& parameter, const TensorView& master) {
    const TensorView in[] = {gradient, factor}, out[] = {parameter, master, m, v};
    cpu::adamw({.in = in, .out = out, .attributes = attributes, .scalars = scalars, .scratch = {}});
  };
  measure("fp32", 28 * values, seconds, [&] { step(g, w, {}); });
  measure("fp32-to-bf16", 30 * values, seconds, [&] { step(g, copy, w); });
  measure("bf16-to-bf16", 28 * values, seconds, [&] { step(half, copy, w); });
}

}  // namespace

int main(int count, char** arguments) {
  const auto number = [&](int index, double otherwise) {
    return count > index ? std::atof(arguments[index]) : otherwise;
  };
  heddle::set_threads(static_cast<int>(number(3, heddle::available_cores())));
  run(static_cast<std::int64_t>(number(1, 100) * 1e6), number(2, 2));
  return 0;
}
